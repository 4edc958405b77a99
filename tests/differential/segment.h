#pragma once
// What goes over the wire in a differential run, as both subjects get it and answer it: whole IPv4
// packets, which neither of them had a hand in reading or writing.

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "net/tcp/segment.h"
#include "net/tcp/seq.h"

namespace sandbox::tcp::differential {

// How a segment of the guest is spoiled.
enum class Damage : uint8_t { kNone, kChecksum, kShortOffset, kLongOffset };

struct Outgoing {
  Tuple tuple;
  Seq seq, ack;
  uint8_t flags = 0;
  uint16_t window = 0;
  Bytes options = {};  // padded here
  Bytes payload = {};
  Damage damage = Damage::kNone;
};
Bytes ip_packet(const Outgoing& segment);

// What a SYN says, as RFC 9293 and 7323 read it.
struct SynOptions {
  std::optional<uint16_t> mss;
  std::optional<uint8_t> scale;
};
SynOptions read_options(ByteView options);

// A segment of a subject.
struct Heard {
  Tuple tuple;
  Seq seq, ack;
  uint8_t flags = 0;
  uint16_t window = 0;
  SynOptions options;
  uint32_t length = 0;  // of the payload

  [[nodiscard]] bool has(uint8_t f) const { return (flags & f) != 0; }
  [[nodiscard]] Seq end() const {
    return seq + length + (has(flag::kSyn) ? 1 : 0) + (has(flag::kFin) ? 1 : 0);
  }
};
struct HeardPacket {
  Heard heard;
  ByteView payload;  // inside the packet that was read
};
// Nothing when it is no TCP segment, or one whose sizes or checksums are wrong.
std::optional<HeardPacket> read_packet(ByteView packet);

// Byte `offset` of the guest's stream, and of the host's.
constexpr uint8_t guest_byte(uint64_t offset) {
  return static_cast<uint8_t>(offset * 131 + (offset >> 8));
}
constexpr uint8_t host_byte(uint64_t offset) {
  return static_cast<uint8_t>(offset * 89 + 7 + (offset >> 9));
}

}  // namespace sandbox::tcp::differential
