#include "net/tcp/ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace sandbox::tcp {

std::array<iovec, 2> iovecs(const ReadSpans& spans) {
  // readv and writev share iovec, which has no const; writev only reads.
  return {iovec{const_cast<uint8_t*>(spans.first.data()), spans.first.size()},
          iovec{const_cast<uint8_t*>(spans.second.data()), spans.second.size()}};
}

std::array<iovec, 2> iovecs(const WriteSpans& spans) {
  return {iovec{spans.first.data(), spans.first.size()},
          iovec{spans.second.data(), spans.second.size()}};
}

void Ring::open(Budget& budget, size_t limit) {
  reset();
  budget_ = &budget;
  limit_ = limit;
}

void Ring::reset() {
  if (budget_ != nullptr) budget_->used_ -= capacity_;
  memory_.reset();
  capacity_ = start_ = size_ = 0;
}

bool Ring::resize(size_t capacity) {
  const size_t more = capacity > capacity_ ? capacity - capacity_ : 0;
  if (more > 0 && capacity > kRingFloor && budget_->used_ + more > budget_->cap_) return false;
  auto memory = std::make_unique_for_overwrite<uint8_t[]>(capacity);
  const ReadSpans old = view();
  if (!old.first.empty()) std::memcpy(memory.get(), old.first.data(), old.first.size());
  if (!old.second.empty()) {
    std::memcpy(memory.get() + old.first.size(), old.second.data(), old.second.size());
  }
  budget_->used_ = budget_->used_ - capacity_ + capacity;
  memory_ = std::move(memory);
  capacity_ = capacity;
  start_ = 0;
  return true;
}

bool Ring::reserve(size_t bytes) {
  if (bytes <= capacity_) return true;
  if (bytes > limit_) return false;
  const size_t wanted = std::max(kRingFloor, std::bit_ceil(bytes));
  if (resize(wanted)) return true;
  // The budget does not reach that far: take what it still allows, so that some progress is made.
  size_t smaller = std::max(kRingFloor, capacity_);
  while (smaller * 2 < wanted && budget_->used_ + (smaller * 2 - capacity_) <= budget_->cap_) {
    smaller *= 2;
  }
  if (smaller > capacity_) (void)resize(smaller);
  return false;
}

size_t Ring::append(ByteView bytes) {
  bytes = bytes.first(std::min(bytes.size(), free()));
  if (bytes.empty()) return 0;
  (void)reserve(size_ + bytes.size());
  bytes = bytes.first(std::min(bytes.size(), capacity_ - size_));
  if (bytes.empty()) return 0;  // no memory: there may not even be a buffer
  const WriteSpans to = room();
  const size_t head = std::min(bytes.size(), to.first.size());
  std::memcpy(to.first.data(), bytes.data(), head);
  if (head < bytes.size()) std::memcpy(to.second.data(), bytes.data() + head, bytes.size() - head);
  size_ += bytes.size();
  return bytes.size();
}

WriteSpans Ring::room() {
  const size_t free_bytes = capacity_ - size_;
  if (free_bytes == 0) return {};
  if (size_ == 0) start_ = 0;  // one piece is better than two
  const size_t from = (start_ + size_) & (capacity_ - 1);
  const size_t head = std::min(free_bytes, capacity_ - from);
  return {{memory_.get() + from, head}, {memory_.get(), free_bytes - head}};
}

void Ring::commit(size_t n) {
  SANDBOX_CHECK(n <= capacity_ - size_);
  size_ += n;
}

ReadSpans Ring::view(size_t offset, size_t length) const {
  SANDBOX_CHECK(offset <= size_ && length <= size_ - offset);
  if (length == 0) return {};
  const size_t from = (start_ + offset) & (capacity_ - 1);
  const size_t head = std::min(length, capacity_ - from);
  return {{memory_.get() + from, head}, {memory_.get(), length - head}};
}

void Ring::consume(size_t n) {
  SANDBOX_CHECK(n <= size_);
  size_ -= n;
  start_ = capacity_ == 0 ? 0 : (start_ + n) & (capacity_ - 1);
}

void Ring::shrink() {
  if (size_ == 0) {
    reset();
    return;
  }
  const size_t enough = std::max(kRingFloor, std::bit_ceil(size_));
  if (enough < capacity_) (void)resize(enough);
}

}  // namespace sandbox::tcp
