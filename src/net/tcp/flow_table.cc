#include "net/tcp/flow_table.h"

#include <bit>

namespace sandbox::tcp {

FlowTable::FlowTable(const std::vector<std::unique_ptr<Flow>>& pool, size_t max_flows, uint64_t key)
    : pool_(pool),
      slots_(std::bit_ceil(max_flows * 2), kEmpty),
      mask_(slots_.size() - 1),
      key_(key) {}

// Two rounds of multiply and xor-shift over the 96 bits, keyed before each. Not a cryptographic
// hash: a guest that learned to collide it would slow down its own connections only.
size_t FlowTable::home(const Tuple& tuple) const {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  uint64_t h = key_ ^ ((uint64_t{tuple.guest_ip.value} << 32) | tuple.host_ip.value);
  h *= kOdd;
  h ^= h >> 32;
  h ^= std::rotl(key_, 32) + ((uint64_t{tuple.guest_port} << 16) | tuple.host_port);
  h *= kOdd;
  return static_cast<size_t>(h >> 32) & mask_;
}

// The slot that holds the tuple, or the empty one where it would go. One always exists: at most
// half are taken.
size_t FlowTable::slot_of(const Tuple& tuple) const {
  size_t slot = home(tuple);
  while (slots_[slot] != kEmpty && !(pool_[slots_[slot]]->tuple_ == tuple))
    slot = (slot + 1) & mask_;
  return slot;
}

Flow* FlowTable::find(const Tuple& tuple) const {
  const size_t slot = slot_of(tuple);
  return slots_[slot] == kEmpty ? nullptr : pool_[slots_[slot]].get();
}

void FlowTable::insert(const Flow& flow) {
  slots_[slot_of(flow.tuple_)] = flow.index_;
  ++size_;
}

// Closes the gap: an entry further on moves into it unless that would put it before its home.
void FlowTable::erase(const Flow& flow) {
  size_t gap = slot_of(flow.tuple_);
  if (slots_[gap] != flow.index_) return;
  --size_;
  for (size_t slot = (gap + 1) & mask_; slots_[slot] != kEmpty; slot = (slot + 1) & mask_) {
    const size_t from_home = (slot - home(pool_[slots_[slot]]->tuple_)) & mask_;
    const size_t from_gap = (slot - gap) & mask_;
    if (from_home >= from_gap) {
      slots_[gap] = slots_[slot];
      gap = slot;
    }
  }
  slots_[gap] = kEmpty;
}

}  // namespace sandbox::tcp
