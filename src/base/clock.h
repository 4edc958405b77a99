#pragma once
// Time. Instant counts nanoseconds of a monotonic clock with an arbitrary start; WallTime counts
// nanoseconds since the epoch, UTC. Code that decides takes an Instant as an argument; only the
// edge reads a clock.

#include <chrono>
#include <cstdint>
#include <string>

namespace sandbox {

using Duration = std::chrono::nanoseconds;
using namespace std::chrono_literals;  // NOLINT: durations are written 200ms everywhere

struct Instant {
  Duration since_start{0};
  friend auto operator<=>(const Instant&, const Instant&) = default;
  friend Instant operator+(Instant at, Duration d) { return {at.since_start + d}; }
  friend Instant operator-(Instant at, Duration d) { return {at.since_start - d}; }
  friend Duration operator-(Instant a, Instant b) { return a.since_start - b.since_start; }
  static constexpr Instant never() { return {Duration::max()}; }
};

Instant monotonic_now();  // CLOCK_MONOTONIC
int64_t wall_now_ns();    // CLOCK_REALTIME, nanoseconds since 1970 UTC

// RFC 3339 with nanoseconds and Z: 2026-08-26T07:38:15.000000001Z
std::string format_rfc3339(int64_t wall_ns);
// Local time for people: 2026-08-26 07:38:15
std::string format_local(int64_t wall_ns);
// Inverse of format_rfc3339 (0..9 fraction digits, Z only, years 1970 to 2261); -1 when it is not
// one.
int64_t parse_rfc3339(std::string_view text);

}  // namespace sandbox
