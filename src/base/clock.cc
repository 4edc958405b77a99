#include "base/clock.h"

#include <fmt/format.h>

#include <ctime>
#include <string_view>

namespace sandbox {

namespace {

int64_t read_clock(clockid_t id) {
  timespec ts{};
  ::clock_gettime(id, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

constexpr int64_t kSecond = 1'000'000'000;

}  // namespace

Instant monotonic_now() {
  return {Duration(read_clock(CLOCK_MONOTONIC))};
}
int64_t wall_now_ns() {
  return read_clock(CLOCK_REALTIME);
}

std::string format_rfc3339(int64_t wall_ns) {
  const time_t seconds = wall_ns / kSecond;
  tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     wall_ns % kSecond);
}

std::string format_local(int64_t wall_ns) {
  const time_t seconds = wall_ns / kSecond;
  tm parts{};
  ::localtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// 2^63 ns end in April of the year after.
constexpr int64_t kLastYear = 2261;

int64_t parse_rfc3339(std::string_view text) {
  if (text.size() < 20 || text.back() != 'Z') return -1;
  const auto number = [&](size_t at, size_t count) -> int64_t {
    int64_t value = 0;
    for (size_t i = at; i < at + count; ++i) {
      if (text[i] < '0' || text[i] > '9') return -1;
      value = value * 10 + (text[i] - '0');
    }
    return value;
  };
  for (const auto& [at, sign] : {std::pair{4, '-'}, {7, '-'}, {10, 'T'}, {13, ':'}, {16, ':'}})
    if (text[static_cast<size_t>(at)] != sign) return -1;
  const int64_t year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int64_t hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (year < 1970 || year > kLastYear || month < 1 || month > 12 || day < 1 || day > 31) return -1;
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return -1;
  tm parts{};
  parts.tm_year = static_cast<int>(year - 1900);
  parts.tm_mon = static_cast<int>(month - 1);
  parts.tm_mday = static_cast<int>(day);
  parts.tm_hour = static_cast<int>(hour);
  parts.tm_min = static_cast<int>(minute);
  parts.tm_sec = static_cast<int>(second);
  int64_t fraction = 0;
  const size_t end = text.size() - 1;
  if (end > 19) {
    if (text[19] != '.' || end == 20 || end > 29) return -1;
    fraction = number(20, end - 20);
    if (fraction < 0) return -1;
    for (size_t i = end - 20; i < 9; ++i) fraction *= 10;
  }
  return static_cast<int64_t>(::timegm(&parts)) * kSecond + fraction;
}

}  // namespace sandbox
