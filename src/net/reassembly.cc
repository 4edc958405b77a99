#include "net/reassembly.h"

#include <algorithm>

namespace sandbox::net {

namespace {

constexpr size_t kMaxPayload = 65535 - kIpv4Header;

}  // namespace

Reassembly::Slot* Reassembly::find(const Ipv4Packet& fragment, Instant now) {
  Slot* free_slot = nullptr;
  for (Slot& slot : slots_) {
    if (slot.used && slot.deadline <= now) slot = Slot{};
    if (!slot.used) {
      free_slot = &slot;
      continue;
    }
    if (slot.id == fragment.id && slot.protocol == fragment.protocol &&
        slot.destination == fragment.destination)
      return &slot;
  }
  if (free_slot == nullptr) return nullptr;
  free_slot->used = true;
  free_slot->destination = fragment.destination;
  free_slot->protocol = fragment.protocol;
  free_slot->id = fragment.id;
  free_slot->deadline = now + kTimeout;
  return free_slot;
}

// False when the range overlaps one that is there. Neighbours are joined, so a whole datagram ends
// as one range.
bool Reassembly::insert(Slot& slot, Range range) {
  auto next =
      std::ranges::find_if(slot.ranges, [&](const Range& r) { return r.end > range.begin; });
  if (next != slot.ranges.end() && next->begin < range.end) return false;
  const bool joins_next = next != slot.ranges.end() && next->begin == range.end;
  const bool joins_previous = next != slot.ranges.begin() && std::prev(next)->end == range.begin;
  if (joins_previous && joins_next) {
    std::prev(next)->end = next->end;
    slot.ranges.erase(next);
  } else if (joins_previous) {
    std::prev(next)->end = range.end;
  } else if (joins_next) {
    next->begin = range.begin;
  } else {
    slot.ranges.insert(next, range);
  }
  return true;
}

Reassembly::Result Reassembly::add(const Ipv4Packet& fragment, Instant now) {
  const Range range{fragment.fragment_offset, fragment.fragment_offset + fragment.payload.size()};
  const bool aligned = !fragment.more_fragments || fragment.payload.size() % 8 == 0;
  if (fragment.payload.empty() || !aligned || range.end > kMaxPayload)
    return {Outcome::kInvalid, {}};
  Slot* slot = find(fragment, now);
  if (slot == nullptr) return {Outcome::kFull, {}};
  if (slot->poisoned) return {Outcome::kOverlap, {}};

  const bool past_the_end =
      slot->total != 0 && (range.end > slot->total || !fragment.more_fragments);
  const bool before_what_is_there =
      !fragment.more_fragments && !slot->ranges.empty() && slot->ranges.back().end > range.end;
  if (past_the_end || before_what_is_there || !insert(*slot, range)) {
    slot->poisoned = true;
    slot->bytes = Bytes{};
    slot->ranges.clear();
    return {Outcome::kOverlap, {}};
  }
  if (!fragment.more_fragments) slot->total = range.end;
  if (slot->bytes.size() < kIpv4Header + range.end) slot->bytes.resize(kIpv4Header + range.end);
  std::ranges::copy(fragment.payload,
                    slot->bytes.begin() + static_cast<std::ptrdiff_t>(kIpv4Header + range.begin));

  const bool whole = slot->total != 0 && slot->ranges.size() == 1 && slot->ranges[0].begin == 0 &&
                     slot->ranges[0].end == slot->total;
  if (!whole) return {Outcome::kWaiting, {}};
  complete_ = std::move(slot->bytes);
  *slot = Slot{};
  write_ipv4(complete_.data(), fragment.source, fragment.destination, fragment.protocol,
             complete_.size() - kIpv4Header);
  Result result{Outcome::kComplete, fragment};
  result.packet.more_fragments = false;
  result.packet.fragment_offset = 0;
  result.packet.whole = complete_;
  result.packet.payload = result.packet.whole.subspan(kIpv4Header);
  return result;
}

size_t Reassembly::waiting() const {
  return static_cast<size_t>(std::ranges::count_if(slots_, [](const Slot& s) { return s.used; }));
}

}  // namespace sandbox::net
