#pragma once
// IPv4 (RFC 791) as one link with one peer needs it: strict parsing and building. Fragments:
// reassembly.h.

#include <cstdint>

#include "base/bytes.h"
#include "base/ip.h"
#include "net/checksum.h"

namespace sandbox::net {

constexpr size_t kIpv4Header = 20;  // we neither send nor take options
constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolUdp = 17;

constexpr Ipv4 kBroadcast{0xFFFFFFFF};
// Unspecified, multicast and broadcast addresses are no end of a conversation (RFC 1122, 3.2.1.3;
// RFC 9293, 3.9.2.3), and answering one would mean to speak in its name.
constexpr bool is_unicast(Ipv4 address) {
  return address.value != 0 && address.value >> 28 != 0xE && address != kBroadcast;
}

// The sum that the checksums of TCP and UDP begin with: addresses, protocol, length of what
// follows.
Checksum pseudo_header(Ipv4 source, Ipv4 destination, uint8_t protocol, size_t length);

struct Ipv4Packet {
  Ipv4 source;
  Ipv4 destination;
  uint8_t protocol = 0;
  uint8_t ttl = 0;
  uint16_t id = 0;
  bool more_fragments = false;
  uint16_t fragment_offset = 0;  // in bytes
  ByteView payload;
  ByteView whole;  // header and payload as received, for quoting in ICMP errors
  [[nodiscard]] bool is_fragment() const { return more_fragments || fragment_offset != 0; }
};

enum class Ipv4Error { kNone, kTruncated, kVersion, kOptions, kLength, kChecksum, kTtl };

// Bytes after the total length are link padding and are cut. Packets with options fail with
// kOptions.
Ipv4Error parse_ipv4(ByteView bytes, Ipv4Packet& out);

// Writes a 20-byte header (don't fragment, TTL 64) for `payload_size` bytes that follow it. Its
// identification is 0, which is fine where nothing is ever fragmented (RFC 6864).
void write_ipv4(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol, size_t payload_size);

// The header of one fragment: `offset` in bytes, a multiple of 8.
struct FragmentPlace {
  uint16_t id = 0;
  size_t offset = 0;
  bool more = false;
};
void write_ipv4_fragment(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                         size_t payload_size, const FragmentPlace& place);

}  // namespace sandbox::net
