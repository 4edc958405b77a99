#pragma once
// IPv4 (RFC 791) as one link with one peer needs it: strict parsing, checksums, building, and
// reassembly.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ip.h"

namespace sandbox::net {

constexpr size_t kIpv4Header = 20;
constexpr uint8_t kProtocolIcmp = 1;
constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kProtocolUdp = 17;

// Ones' complement sum (RFC 1071), not folded: add parts of even length, then finish. `sum` is what
// came before.
uint64_t checksum_add(uint64_t sum, ByteView bytes);
uint16_t checksum_finish(uint64_t sum);  // folded and complemented, host order
// What TCP and UDP put in front of their own bytes: addresses, protocol, length.
uint64_t pseudo_header_sum(Ipv4 source, Ipv4 destination, uint8_t protocol, size_t length);

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

// Writes a 20-byte header (don't fragment, TTL 64) for `payload_size` bytes that follow it.
void write_ipv4(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol, size_t payload_size);

// The header of one fragment: `offset` in bytes, a multiple of 8.
struct FragmentPlace {
  uint16_t id = 0;
  size_t offset = 0;
  bool more = false;
};
void write_ipv4_fragment(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                         size_t payload_size, const FragmentPlace& place);

// Puts UDP and ICMP datagrams together again. At most 8 datagrams at once, 64 KiB each, 5 s from
// the first fragment. Any overlap, even of equal bytes, drops the whole datagram and whatever else
// of it arrives until its time is up (RFC 5722 gives the reason: overlaps exist to show two readers
// two different packets).
class Reassembly {
 public:
  static constexpr size_t kAtOnce = 8;
  static constexpr Duration kTimeout = std::chrono::seconds(5);

  enum class Outcome { kWaiting, kComplete, kOverlap, kInvalid, kFull };
  struct Result {
    Outcome outcome = Outcome::kWaiting;
    Ipv4Packet packet;  // when complete; its views live until the next call
  };

  Result add(const Ipv4Packet& fragment, Instant now);
  [[nodiscard]] size_t waiting() const;

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  struct Slot {
    bool used = false;
    bool poisoned = false;
    Ipv4 destination;
    uint8_t protocol = 0;
    uint16_t id = 0;
    Instant deadline;
    size_t total = 0;           // payload length; 0 until the last fragment came
    std::vector<Range> ranges;  // sorted, disjoint
    Bytes bytes;                // a header, then the payload
  };

  Slot* find(const Ipv4Packet& fragment, Instant now);
  static bool insert(Slot& slot, Range range);

  std::array<Slot, kAtOnce> slots_;
  Bytes complete_;
};

}  // namespace sandbox::net
