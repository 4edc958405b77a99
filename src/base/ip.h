#pragma once
// IP addresses and networks as values. Text forms follow RFC 4291/5952 and dotted decimal only:
// "127.1", "0x7f.1" and "2130706433" are not addresses here.

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sandbox {

struct Ipv4 {
  uint32_t value = 0;  // host byte order: 127.0.0.1 is 0x7f000001
  friend auto operator<=>(const Ipv4&, const Ipv4&) = default;
  static std::optional<Ipv4> parse(std::string_view text);  // four decimal parts, no leading zeros
  [[nodiscard]] std::string text() const;
};

// An IPv4 or IPv6 address. IPv4 is held as ::ffff:a.b.c.d, so an address and its mapped form are
// equal by construction.
class IpAddress {
 public:
  IpAddress() = default;
  IpAddress(Ipv4 v4);  // NOLINT: every Ipv4 is an IpAddress
  static std::optional<IpAddress> parse(
      std::string_view text);  // either family, no brackets, no zone
  static IpAddress from_bytes(const std::array<uint8_t, 16>& bytes);

  [[nodiscard]] bool is_v4() const;  // true for mapped addresses as well
  [[nodiscard]] Ipv4 v4() const;     // only when is_v4()
  [[nodiscard]] const std::array<uint8_t, 16>& bytes() const { return bytes_; }
  [[nodiscard]] std::string text() const;  // "1.2.3.4" or "2001:db8::1"
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  std::array<uint8_t, 16> bytes_{};
};

class Cidr {
 public:
  // "10.0.0.0/8", "fd00::/8". The host bits must be zero, so that a typing error is not silently
  // widened.
  static std::optional<Cidr> parse(std::string_view text);
  static Cidr host(const IpAddress& address);  // /32 or /128
  [[nodiscard]] bool contains(const IpAddress& address) const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int prefix() const { return base_.is_v4() ? prefix_ - 96 : prefix_; }
  [[nodiscard]] const IpAddress& base() const { return base_; }
  friend auto operator<=>(const Cidr&, const Cidr&) = default;

 private:
  IpAddress base_;
  int prefix_ = 0;  // of the 128-bit form
};

// IANA special-use space that a public name must never be vouched at (contract N9): 0/8 10/8
// 100.64/10 127/8 169.254/16 172.16/12 192.0.0/24 192.0.2/24 192.168/16 198.18/15 198.51.100/24
// 203.0.113/24 224/4 240/4; ::/128 ::1 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32
// 2002::/16 fc00::/7 fe80::/10 ff00::/8. Source: RFC 6890 and the IANA registries.
bool is_special_use(const IpAddress& address);
// The part of it that not even an explicit NAME@RANGE may reach: unspecified, loopback, link-local
// (cloud metadata), multicast, broadcast.
bool is_never_by_name(const IpAddress& address);

}  // namespace sandbox

template <>
struct std::hash<sandbox::Ipv4> {
  size_t operator()(const sandbox::Ipv4& a) const noexcept {
    return std::hash<uint32_t>()(a.value);
  }
};
