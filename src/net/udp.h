#pragma once
// UDP (RFC 768).

#include <optional>

#include "base/bytes.h"
#include "base/ip.h"
#include "net/ipv4.h"

namespace sandbox::net {

constexpr size_t kUdpHeader = 8;

struct UdpDatagram {
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  ByteView payload;
};

enum class UdpError { kNone, kTruncated, kLength, kChecksum, kPort };

// A checksum of zero means that the sender made none, which IPv4 permits.
UdpError parse_udp(const Ipv4Packet& packet, UdpDatagram& out);

// Writes the header in front of `payload`, which the caller has placed at out + kUdpHeader.
void write_udp(uint8_t* out, Ipv4 source, uint16_t source_port, Ipv4 destination,
               uint16_t destination_port, size_t payload_size);

}  // namespace sandbox::net
