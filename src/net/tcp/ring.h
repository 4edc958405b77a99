#pragma once
// A ring of bytes whose memory follows its use: none until the first byte, then 4 KiB, doubling up
// to a limit, given back when idle. The limit is what may be promised to a peer (a window); the
// memory is taken only when bytes arrive.
//
// All rings of one stack share a Budget. Each may always have its first 4 KiB, so every flow can
// make progress; beyond that growth stops at the budget's cap, and the caller sees a short write or
// no room, which it must survive.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"

namespace sandbox::tcp {

inline constexpr size_t kRingFloor = 4096;

// Contents or room of a ring: at most two pieces, the second empty unless the ring wraps.
struct ReadSpans {
  ByteView first, second;
  [[nodiscard]] size_t size() const { return first.size() + second.size(); }
};
struct WriteSpans {
  std::span<uint8_t> first, second;
  [[nodiscard]] size_t size() const { return first.size() + second.size(); }
};

// The same for readv and writev; an empty second piece has length 0, which both accept.
std::array<iovec, 2> iovecs(const ReadSpans& spans);
std::array<iovec, 2> iovecs(const WriteSpans& spans);

class Budget {
 public:
  explicit Budget(size_t cap) : cap_(cap) {}
  [[nodiscard]] size_t used() const { return used_; }
  [[nodiscard]] size_t cap() const { return cap_; }
  // Three quarters are in use: promise little, so that what was promised can be kept.
  [[nodiscard]] bool scarce() const { return used_ >= cap_ / 4 * 3; }

 private:
  friend class Ring;
  size_t cap_;
  size_t used_ = 0;
};

class Ring {
 public:
  Ring() = default;
  ~Ring() { reset(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // `limit` is a power of two, at least kRingFloor. Drops any contents.
  void open(Budget& budget, size_t limit);
  // Drops contents and memory.
  void reset();

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] size_t limit() const { return limit_; }
  [[nodiscard]] size_t free() const {
    return limit_ - size_;
  }  // up to the limit, not to the memory
  [[nodiscard]] size_t allocated() const { return capacity_; }

  // Appends a copy; returns how many bytes were taken (fewer at the limit, or when the budget is
  // used up).
  size_t append(ByteView bytes);
  // Room to write into, then commit(n) with n <= its size. Only room that has memory: see
  // reserve().
  [[nodiscard]] WriteSpans room();
  void commit(size_t n);
  // Tries to have memory for `bytes` in all; true when capacity reached it.
  bool reserve(size_t bytes);

  // `length` bytes from `offset` on; both must lie inside the contents.
  [[nodiscard]] ReadSpans view(size_t offset, size_t length) const;
  [[nodiscard]] ReadSpans view() const { return view(0, size_); }
  void consume(size_t n);

  // Gives back memory beyond what the contents need: all of it when empty.
  void shrink();

 private:
  bool resize(size_t capacity);

  std::unique_ptr<uint8_t[]> memory_;
  Budget* budget_ = nullptr;
  size_t limit_ = 0;
  size_t capacity_ = 0;  // 0 or a power of two
  size_t start_ = 0;     // index of the oldest byte
  size_t size_ = 0;
};

}  // namespace sandbox::tcp
