#pragma once
// Fragments of IPv4 put together again.

#include <array>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ip.h"
#include "net/ipv4.h"

namespace sandbox::net {

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
