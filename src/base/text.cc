#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace sandbox {

namespace {

// Length of the well-formed UTF-8 sequence at the front (RFC 3629), 0 when there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const uint8_t b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return continues(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (b == 0xE0 && byte(1) < 0xA0) return 0;
    if (b == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (b == 0xF0 && byte(1) < 0x90) return 0;
    if (b == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U);
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string escape_terminal(std::string_view text, bool keep_newlines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto first = static_cast<uint8_t>(text[0]);
    const bool control = length == 1 && (first < 0x20 || first == 0x7F);
    const bool c1 = length == 2 && first == 0xC2 && static_cast<uint8_t>(text[1]) < 0xA0;
    if (length == 1 && first == '\n' && keep_newlines) {
      out.push_back('\n');
    } else if (length == 0 || control) {
      out += fmt::format("\\x{:02x}", first);
    } else if (c1) {
      out += fmt::format("\\x{:02x}\\x{:02x}", first, static_cast<uint8_t>(text[1]));
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string to_hex(ByteView bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const uint8_t b : bytes) {
    out.push_back(kDigits[b >> 4]);
    out.push_back(kDigits[b & 15]);
  }
  return out;
}

std::optional<Bytes> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  Bytes out;
  out.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<uint8_t>(high * 16 + low));
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  static constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::optional<uint64_t> parse_decimal(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

std::optional<std::string_view> suggest(std::string_view word,
                                        const std::vector<std::string_view>& known) {
  if (word.size() > 64) return std::nullopt;
  std::optional<std::string_view> best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string format_size(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::optional<uint64_t> parse_size(std::string_view text) {
  const std::string lower = to_lower(text);
  const size_t digits = lower.find_first_not_of("0123456789.");
  const std::string number = lower.substr(0, digits);
  std::string unit = digits == std::string::npos ? "" : lower.substr(digits);
  if (unit.ends_with("ib")) unit.resize(unit.size() - 2);
  if (unit.size() == 2 && unit.ends_with("b")) unit.resize(1);
  uint64_t factor = 1;
  if (unit == "k")
    factor = uint64_t{1} << 10;
  else if (unit == "m")
    factor = uint64_t{1} << 20;
  else if (unit == "g")
    factor = uint64_t{1} << 30;
  else if (unit == "t")
    factor = uint64_t{1} << 40;
  else if (!unit.empty() && unit != "b")
    return std::nullopt;
  const size_t dot = number.find('.');
  const auto whole = parse_decimal(number.substr(0, dot));
  if (!whole || *whole > std::numeric_limits<uint64_t>::max() / factor / 2) return std::nullopt;
  uint64_t value = *whole * factor;
  if (dot != std::string::npos) {
    const std::string fraction = number.substr(dot + 1);
    if (fraction.empty() || fraction.size() > 9 ||
        fraction.find_first_not_of("0123456789") != std::string::npos || factor == 1)
      return std::nullopt;
    value += static_cast<uint64_t>(std::stod("0." + fraction) * static_cast<double>(factor));
  }
  return value;
}

}  // namespace sandbox
