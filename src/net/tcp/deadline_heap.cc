#include "net/tcp/deadline_heap.h"

namespace sandbox::tcp {
namespace {
constexpr uint32_t kNowhere = UINT32_MAX;
}

void DeadlineHeap::wake_by(Flow& flow, Instant at) {
  if (at >= flow.heap_key_) return;  // woken early enough; never() is only less than nothing
  flow.heap_key_ = at;
  if (flow.heap_index_ == kNowhere) {
    heap_.push_back(&flow);
    flow.heap_index_ = static_cast<uint32_t>(heap_.size() - 1);
  }
  rise(flow.heap_index_);
}

void DeadlineHeap::remove(Flow& flow) {
  if (flow.heap_index_ == kNowhere) return;
  const size_t gap = flow.heap_index_;
  Flow* last = heap_.back();
  heap_.pop_back();
  flow.heap_index_ = kNowhere;
  flow.heap_key_ = Instant::never();
  if (last == &flow) return;
  place(gap, *last);
  rise(gap);
  sink(last->heap_index_);
}

Flow* DeadlineHeap::pop_due(Instant now) {
  if (heap_.empty() || heap_.front()->heap_key_ > now) return nullptr;
  Flow* flow = heap_.front();
  remove(*flow);
  return flow;
}

Instant DeadlineHeap::earliest() const {
  return heap_.empty() ? Instant::never() : heap_.front()->heap_key_;
}

bool DeadlineHeap::consistent() const {
  for (size_t i = 0; i < heap_.size(); ++i) {
    if (heap_[i]->heap_index_ != i) return false;
    if (i > 0 && heap_[i]->heap_key_ < heap_[(i - 1) / 2]->heap_key_) return false;
  }
  return true;
}

void DeadlineHeap::place(size_t index, Flow& flow) {
  heap_[index] = &flow;
  flow.heap_index_ = static_cast<uint32_t>(index);
}

void DeadlineHeap::rise(size_t index) {
  Flow* flow = heap_[index];
  while (index > 0) {
    const size_t parent = (index - 1) / 2;
    if (heap_[parent]->heap_key_ <= flow->heap_key_) break;
    place(index, *heap_[parent]);
    index = parent;
  }
  place(index, *flow);
}

void DeadlineHeap::sink(size_t index) {
  Flow* flow = heap_[index];
  for (;;) {
    size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->heap_key_ < heap_[child]->heap_key_) ++child;
    if (flow->heap_key_ <= heap_[child]->heap_key_) break;
    place(index, *heap_[child]);
    index = child;
  }
  place(index, *flow);
}

}  // namespace sandbox::tcp
