#pragma once
// A TCP sequence number: arithmetic modulo 2^32, order by the shorter way round (RFC 9293, 3.4).
// Two numbers may be compared only while they are less than 2^31 apart, which every window here
// guarantees (the largest is 2^30).

#include <cstdint>

namespace sandbox::tcp {

struct Seq {
  uint32_t value = 0;

  friend constexpr bool operator==(Seq, Seq) = default;
  // How far `a` lies after `b`; negative when it lies before.
  friend constexpr int32_t operator-(Seq a, Seq b) {
    return static_cast<int32_t>(a.value - b.value);
  }
  friend constexpr Seq operator+(Seq a, uint32_t n) { return {a.value + n}; }
  friend constexpr Seq operator-(Seq a, uint32_t n) { return {a.value - n}; }
  friend constexpr bool operator<(Seq a, Seq b) { return a - b < 0; }
  friend constexpr bool operator>(Seq a, Seq b) { return b < a; }
  friend constexpr bool operator<=(Seq a, Seq b) { return !(b < a); }
  friend constexpr bool operator>=(Seq a, Seq b) { return !(a < b); }
  constexpr Seq& operator+=(uint32_t n) {
    value += n;
    return *this;
  }
};

constexpr Seq later_of(Seq a, Seq b) {
  return a < b ? b : a;
}

}  // namespace sandbox::tcp
