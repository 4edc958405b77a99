#pragma once
// HostPattern: one rule of an allow or deny list, as people write it.
//
//   pattern = [ scope "/" ] target [ ":" port ]
//   scope   = "udp" | "icmp" | "plain" | "proxy"
//   target  = name [ "@" range ]            one host                     api.example.org
//           | "*." name [ "@" range ]       a zone: apex and any depth   *.example.org@10.0.0.0/8
//           | ipv4 [ "/" n ]                an address or a network      192.0.2.7  10.0.0.0/8
//           | "[" ipv6 [ "/" n ] "]"        the same, bracketed          [2001:db8::/32]
//   range   = ipv4 [ "/" n ] | "[" ipv6 [ "/" n ] "]"
//
// The port is written last: host@10.0.0.0/8:443. Accepted as well and rewritten:
// host:443@10.0.0.0/8, [2001:db8::]/32, upper case, one trailing dot, /32 and /128. parse(p.text())
// == p for every pattern.
//
// What the scopes mean is in policy.h. icmp/ takes no port; plain/ and proxy/ need one.
// host.internal needs a port and takes neither udp/ nor icmp/ nor "@".

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ip.h"
#include "base/result.h"
#include "policy/host_name.h"

namespace sandbox::policy {

enum class Scope { kAny, kUdp, kIcmp, kPlain, kProxy };

struct Zone {
  HostName apex;
  friend auto operator<=>(const Zone&, const Zone&) = default;
};

class HostPattern {
 public:
  // The error reads "'a.*.b': ..." and carries a hint with the nearest thing that would be
  // accepted.
  static Result<HostPattern> parse(std::string_view text);

  [[nodiscard]] Scope scope() const { return scope_; }
  [[nodiscard]] std::optional<uint16_t> port() const { return port_; }
  // Where a name of this rule may resolve to; nullopt: to any address that is not special-use.
  [[nodiscard]] const std::optional<Cidr>& range() const { return range_; }

  [[nodiscard]] bool is_literal() const { return std::holds_alternative<Cidr>(target_); }
  [[nodiscard]] bool is_host_internal() const;
  [[nodiscard]] const HostName* exact_name() const;  // null for zones and addresses
  [[nodiscard]] const HostName* zone_apex() const;   // of "*.zone", else null
  [[nodiscard]] const Cidr* network() const;  // of a literal rule, an address included, else null
  [[nodiscard]] std::optional<IpAddress> exact_address() const;  // nullopt for networks and names
  [[nodiscard]] bool matches(const HostName& name) const;
  // The rule's name, or the apex of its zone, is a name below this one.
  [[nodiscard]] bool is_below(const HostName& name) const;
  // A literal rule's address or network holds the address; networks never match across families.
  [[nodiscard]] bool matches(const IpAddress& address) const;
  // A literal rule of one address, not a network.
  [[nodiscard]] bool is_exactly(const IpAddress& address) const;
  // The whole network of this literal rule lies in space that no name may reach (loopback,
  // link-local, multicast).
  [[nodiscard]] bool is_wholly_never_by_name() const;

  [[nodiscard]] std::string text() const;  // canonical form
  friend auto operator<=>(const HostPattern&, const HostPattern&) = default;

 private:
  friend class PatternParser;
  using Target = std::variant<HostName, Zone, Cidr>;
  explicit HostPattern(Target target) : target_(std::move(target)) {}

  Scope scope_ = Scope::kAny;
  Target target_;
  std::optional<Cidr> range_;
  std::optional<uint16_t> port_;
};

}  // namespace sandbox::policy
