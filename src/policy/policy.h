#pragma once
// Policy: allow rules and deny rules, and the questions the gates ask them. Immutable and pure: no
// clock, no network, no ledger; the caller brings the names that were vouched for an address.
// `policy check` asks the same object.
//
//   auto policy = Policy::create({"*.example.org:443", "10.0.0.0/8"}, {"ads.example.org"});
//   policy->query(name)                                    may this name be looked up at all?
//   policy->may_vouch(name, address, host_addresses)       may this answer enter the ledger?
//   policy->dial({Protocol::kTcp, address, 443, names})    may this connection be opened?
//   policy->name({sni, 443, address, names}, kSniDenied)   may it carry this name?
//
// Deny comes first, always. What a rule speaks about:
//
//   rule              as allow                            as deny
//   HOST              TCP on every port (1), ping         everything: lookup, TCP, UDP, ping
//   HOST:443          TCP 443                             TCP and UDP 443; not the lookup
//   udp/HOST[:P]      UDP only                            UDP only
//   icmp/HOST         ping only                           ping only
//   plain/HOST:P      TCP P, the server speaks first      (an error: deny HOST:P)
//   proxy/HOST:P      TCP P, HTTP proxying is spoken      (an error: deny HOST:P)
//   HOST@RANGE        as HOST, resolved inside RANGE      (an error: deny HOST, or the range)
//
// (1) Not the ports of other resolvers, 53 853 5353 5355: those need a rule with that very port.
// UDP 443 is refused in every case, so that clients fall back from QUIC to what the name gate can
// read.
//
// Addresses. A name rule without RANGE never reaches special-use space; one with RANGE reaches it
// inside RANGE. No name rule reaches loopback, link-local, multicast or an address of the host. A
// rule for a network does not reach those either, unless the whole network lies there or, for an
// address of the host, the rule is for exactly that address: "0.0.0.0/0" is the internet, not the
// host's own services.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "policy/host_name.h"
#include "policy/host_pattern.h"
#include "policy/reason.h"

namespace sandbox::policy {

enum class Protocol { kTcp, kUdp, kIcmp };
std::string_view text(Protocol protocol);  // "tcp", "udp", "icmp"

struct [[nodiscard]] Verdict {
  bool allow = false;
  Reason reason = Reason::kNoAllowRule;
  std::string rule = {};    // text of the rule that decided; empty where none did
  std::string detail = {};  // for people: "resolves to private 10.0.0.1; allow with
                            // db.example.org@10.0.0.1"; mostly empty
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

struct Dial {
  Protocol protocol = Protocol::kTcp;
  IpAddress address = {};
  uint16_t port = 0;                     // 0 for ICMP
  std::span<const HostName> names = {};  // vouched for the address
  std::span<const HostName> aliases =
      {};  // other names of the CNAME chains: they can deny, never allow
  std::span<const IpAddress> host_addresses = {};  // of the host itself
  // The address only stands for its name, which a proxy resolves: no allow rule speaks about it.
  bool stand_in = false;
};

struct StreamName {
  const HostName& name;  // ServerName or Host
  uint16_t port = 0;
  IpAddress address = {};                // where the flow goes
  std::span<const HostName> names = {};  // vouched for the address
  bool stand_in = false;                 // as in Dial
};

class Policy {
 public:
  Policy() = default;  // allows nothing
  static Result<Policy> create(std::span<const std::string> allow,
                               std::span<const std::string> deny);

  // The same with one more allow rule.
  [[nodiscard]] Policy with(const HostPattern& allow) const;

  [[nodiscard]] const std::vector<HostPattern>& allow_rules() const { return allow_; }
  [[nodiscard]] const std::vector<HostPattern>& deny_rules() const { return deny_; }

  // Gate 1. Allowed when an allow rule could apply to the name on some port; a deny with a port or
  // scope is left to the dial.
  Verdict query(const HostName& name) const;
  // The deny half of query(), for every further name of a CNAME chain: allow is judged on the
  // question alone.
  [[nodiscard]] std::optional<Verdict> denied(const HostName& name) const;

  // Is the name a parent of one that a rule allows: "example.org" where a.example.org is?
  [[nodiscard]] bool allows_below(const HostName& name) const;

  // The ledger: may the address be entered under the name that was asked? Refusals are kRebinding
  // with a detail.
  Verdict may_vouch(const HostName& name, const IpAddress& address,
                    std::span<const IpAddress> host_addresses) const;

  // Gates 2 and 3.
  Verdict dial(const Dial& dial) const;

  // Gate 4: the name must be vouched for the address, allowed at the port, not denied. `refusal` is
  // kSniDenied or kHostDenied.
  Verdict name(const StreamName& stream, Reason refusal) const;
  // A flow that shows no name (no SNI, Host is the address itself): allowed only where a rule names
  // the address.
  Verdict literal(Protocol protocol, const IpAddress& address, uint16_t port,
                  std::span<const IpAddress> host_addresses) const;

  // Is this a flow on which the server speaks first and no name is expected (plain/), or one to a
  // proxy (proxy/)? Ask after dial() allowed it. The text of the rule, or nullopt.
  [[nodiscard]] std::optional<std::string> plain(const Dial& dial) const;
  [[nodiscard]] std::optional<std::string> proxy(const Dial& dial) const;
  // Absolute-form or CONNECT through a proxy/ flow: judged by the rules, without vouching. Refusals
  // are kHostDenied.
  Verdict proxy_target(const HostName& name, uint16_t port) const;
  Verdict proxy_target(const IpAddress& address, uint16_t port) const;

  // Deny, then allow, for a name wherever it resolves. Without a port: on any.
  Verdict anywhere(const HostName& name, Protocol protocol, std::optional<uint16_t> port) const;

  // `policy check`: [udp/|icmp/]HOST[@ADDRESS][:PORT], answered as the gates would; without ADDRESS
  // for a name that resolves where its rules expect, without a port: could anything reach it?
  Result<Verdict> check(std::string_view subject) const;

 private:
  Verdict check_at(const HostName& name, const IpAddress& address, Protocol protocol,
                   std::optional<uint16_t> port, bool any) const;
  [[nodiscard]] std::optional<std::string> scoped(Scope scope, const Dial& dial) const;

  std::vector<HostPattern> allow_;
  std::vector<HostPattern> deny_;
};

}  // namespace sandbox::policy
