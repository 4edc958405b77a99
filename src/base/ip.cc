#include "base/ip.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace sandbox {

namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

constexpr const char* kSpecial[] = {
    "0.0.0.0/8",       "10.0.0.0/8",     "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12",   "192.0.0.0/24",   "192.0.2.0/24",   "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",    "::/128",
    "::1/128",         "64:ff9b::/96",   "64:ff9b:1::/48", "100::/64",       "2001::/23",
    "2001:db8::/32",   "2002::/16",      "fc00::/7",       "fe80::/10",      "ff00::/8"};

constexpr const char* kNever[] = {"0.0.0.0/8",   "127.0.0.0/8",        "169.254.0.0/16",
                                  "224.0.0.0/4", "255.255.255.255/32", "::/128",
                                  "::1/128",     "fe80::/10",          "ff00::/8"};

template <size_t N>
bool in_any(const IpAddress& address, const char* const (&ranges)[N]) {
  static const auto parsed = [&] {
    std::array<Cidr, N> out;
    for (size_t i = 0; i < N; ++i) out[i] = *Cidr::parse(ranges[i]);
    return out;
  }();
  return std::any_of(parsed.begin(), parsed.end(),
                     [&](const Cidr& range) { return range.contains(address); });
}

}  // namespace

std::optional<Ipv4> Ipv4::parse(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() != 4) return std::nullopt;
  uint32_t value = 0;
  for (const auto part : parts) {
    const auto number = part.size() > 3 ? std::nullopt : parse_decimal(part);
    if (!number || *number > 255) return std::nullopt;
    value = value << 8 | static_cast<uint32_t>(*number);
  }
  return Ipv4{value};
}

std::string Ipv4::text() const {
  return fmt::format("{}.{}.{}.{}", value >> 24, value >> 16 & 255, value >> 8 & 255, value & 255);
}

IpAddress::IpAddress(Ipv4 v4) {
  std::copy(kMapped.begin(), kMapped.end(), bytes_.begin());
  for (size_t i = 0; i < 4; ++i) bytes_[12 + i] = static_cast<uint8_t>(v4.value >> (24 - 8 * i));
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  if (const auto v4 = Ipv4::parse(text)) return IpAddress(*v4);
  if (text.find(':') == std::string_view::npos || text.size() > 45) return std::nullopt;
  IpAddress out;
  if (::inet_pton(AF_INET6, std::string(text).c_str(), out.bytes_.data()) != 1) return std::nullopt;
  return out;
}

IpAddress IpAddress::from_bytes(const std::array<uint8_t, 16>& bytes) {
  IpAddress out;
  out.bytes_ = bytes;
  return out;
}

bool IpAddress::is_v4() const {
  return std::equal(kMapped.begin(), kMapped.end(), bytes_.begin());
}

Ipv4 IpAddress::v4() const {
  uint32_t value = 0;
  for (size_t i = 12; i < 16; ++i) value = value << 8 | bytes_[i];
  return {value};
}

std::string IpAddress::text() const {
  if (is_v4()) return v4().text();
  char buffer[INET6_ADDRSTRLEN];
  return ::inet_ntop(AF_INET6, bytes_.data(), buffer, sizeof buffer);
}

std::optional<Cidr> Cidr::parse(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto base = IpAddress::parse(text.substr(0, slash));
  const auto prefix = parse_decimal(text.substr(slash + 1));
  if (!base || !prefix) return std::nullopt;
  const bool v4 = text.find(':') == std::string_view::npos;
  if (*prefix > (v4 ? 32U : 128U)) return std::nullopt;
  Cidr out;
  out.base_ = *base;
  out.prefix_ = static_cast<int>(*prefix) + (v4 ? 96 : 0);
  for (int bit = out.prefix_; bit < 128; ++bit)
    if ((base->bytes()[static_cast<size_t>(bit / 8)] >> (7 - bit % 8) & 1) != 0)
      return std::nullopt;
  return out;
}

Cidr Cidr::host(const IpAddress& address) {
  Cidr out;
  out.base_ = address;
  out.prefix_ = 128;
  return out;
}

bool Cidr::contains(const IpAddress& address) const {
  const auto whole = static_cast<size_t>(prefix_ / 8);
  if (std::memcmp(base_.bytes().data(), address.bytes().data(), whole) != 0) return false;
  const int rest = prefix_ % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<uint8_t>(0xFF << (8 - rest));
  return ((base_.bytes()[whole] ^ address.bytes()[whole]) & mask) == 0;
}

std::string Cidr::text() const {
  return fmt::format("{}/{}", base_.text(), prefix());
}

bool is_special_use(const IpAddress& address) {
  return in_any(address, kSpecial);
}
bool is_never_by_name(const IpAddress& address) {
  return in_any(address, kNever);
}

}  // namespace sandbox
