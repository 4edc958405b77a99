#pragma once
// One TCP segment on the wire: parsed from the payload of an IPv4 packet, or written as a whole
// IPv4 packet.

#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/ip.h"
#include "net/tcp/ring.h"
#include "net/tcp/seq.h"

namespace sandbox::tcp {

// A connection as seen from the gateway: `guest` is the end inside the VM, `host` the destination
// it asked for (or, for a published port, the address the gateway speaks from).
struct Tuple {
  Ipv4 guest_ip, host_ip;
  uint16_t guest_port = 0, host_port = 0;
  friend bool operator==(const Tuple&, const Tuple&) = default;
};

namespace flag {
inline constexpr uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04, kPsh = 0x08, kAck = 0x10,
                         kUrg = 0x20;
}

inline constexpr size_t kTcpHeader = 20;      // without options
inline constexpr uint16_t kDefaultMss = 536;  // when a SYN names none (RFC 9293, 3.7.1)
inline constexpr uint8_t kMaxScale = 14;      // larger offers count as 14 (RFC 7323, 2.3)

enum class SegmentError { kShort, kBadOffset, kBadChecksum };

struct SegmentView {
  uint16_t source_port = 0, destination_port = 0;
  Seq seq, ack;
  uint8_t flags = 0;
  uint16_t window = 0;  // as sent, unscaled
  // From options, on a SYN only; a malformed option list ends where it stops making sense.
  std::optional<uint16_t> mss;
  std::optional<uint8_t> scale;
  ByteView payload;

  [[nodiscard]] bool has(uint8_t f) const { return (flags & f) != 0; }
  // Sequence space it takes: payload plus one each for SYN and FIN.
  [[nodiscard]] uint32_t length() const {
    return static_cast<uint32_t>(payload.size()) + (has(flag::kSyn) ? 1 : 0) +
           (has(flag::kFin) ? 1 : 0);
  }
};

struct ParsedSegment {
  SegmentView segment;
  std::optional<SegmentError> error;
};
ParsedSegment parse_segment(Ipv4 source, Ipv4 destination, ByteView ip_payload);

// What to write. Direction is always gateway → guest: source is the tuple's host end.
struct SegmentSpec {
  Seq seq, ack;
  uint8_t flags = 0;
  uint16_t window = 0;
  std::optional<uint16_t> mss;  // options are written on a SYN only
  std::optional<uint8_t> scale;
  ReadSpans payload;
};

// Size of the IPv4 packet that write_segment produces.
size_t packet_size(const SegmentSpec& spec);
// Writes IPv4 header, TCP header, options and payload, checksums included. `out` holds at least
// packet_size(spec) bytes.
void write_segment(const Tuple& tuple, const SegmentSpec& spec, std::span<uint8_t> out);

}  // namespace sandbox::tcp
