#include "policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sandbox::policy {

namespace {

// DNS, DNS over TLS, multicast DNS, LLMNR: what answers there is another resolver.
constexpr std::array<uint16_t, 4> kResolverPorts = {53, 853, 5353, 5355};
constexpr uint16_t kQuicPort = 443;

bool contains(std::span<const IpAddress> addresses, const IpAddress& address) {
  return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
}

// Does a deny rule speak about this protocol and port? The target is matched elsewhere.
bool forbids(const HostPattern& deny, Protocol protocol, std::optional<uint16_t> port) {
  if (deny.scope() == Scope::kUdp && protocol != Protocol::kUdp) return false;
  if (deny.scope() == Scope::kIcmp && protocol != Protocol::kIcmp) return false;
  if (!deny.port()) return true;
  return protocol != Protocol::kIcmp && deny.port() == port;
}

bool serves(Scope scope, Protocol protocol) {
  switch (scope) {
    case Scope::kUdp:
      return protocol == Protocol::kUdp;
    case Scope::kIcmp:
      return protocol == Protocol::kIcmp;
    case Scope::kPlain:
    case Scope::kProxy:
      return protocol == Protocol::kTcp;
    case Scope::kAny:
      break;
  }
  return protocol != Protocol::kUdp;
}

// Does an allow rule permit this protocol and port? Without a port: on any port at all?
bool permits(const HostPattern& allow, Protocol protocol, std::optional<uint16_t> port) {
  if (!serves(allow.scope(), protocol)) return false;
  if (protocol == Protocol::kIcmp) return !allow.port();
  if (!port) return true;
  if (allow.port()) return allow.port() == port;
  return std::find(kResolverPorts.begin(), kResolverPorts.end(), *port) == kResolverPorts.end();
}

bool out_of_reach_of_names(const IpAddress& address, std::span<const IpAddress> host_addresses) {
  return is_never_by_name(address) || contains(host_addresses, address);
}

// May a name of this rule lead to the address?
bool name_reaches(const HostPattern& rule, const IpAddress& address,
                  std::span<const IpAddress> host_addresses, bool stand_in) {
  if (stand_in) return true;
  if (rule.is_host_internal()) return true;  // entered by the gateway itself, never from an answer
  if (out_of_reach_of_names(address, host_addresses)) return false;
  return rule.range() ? rule.range()->contains(address) : !is_special_use(address);
}

// Does a literal rule reach the address? A network does not silently include what no name may
// reach.
bool literal_reaches(const HostPattern& rule, const Dial& dial) {
  if (dial.stand_in || !rule.matches(dial.address)) return false;
  if (rule.is_exactly(dial.address)) return true;
  if (contains(dial.host_addresses, dial.address)) return false;
  return !is_never_by_name(dial.address) || rule.is_wholly_never_by_name();
}

bool matches_any(const HostPattern& rule, std::span<const HostName> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const HostName& name) { return rule.matches(name); });
}

Verdict allowed_by(const HostPattern& rule) {
  return {true, Reason::kAllowRule, rule.text(), {}};
}

Verdict denied_by(const HostPattern& rule, Reason reason = Reason::kDenyRule) {
  return {false, reason, rule.text(), {}};
}

// Why a name that some rule allows may not be vouched at this address.
std::string rebinding_detail(const HostName& name, const IpAddress& address,
                             std::span<const IpAddress> host_addresses) {
  const std::string shown = address.text();
  if (contains(host_addresses, address))
    return fmt::format(
        "resolves to {}, an address of the host or of its proxy; no name may lead there", shown);
  if (is_never_by_name(address))
    return fmt::format("resolves to {} (loopback, link-local or multicast); no name may lead there",
                       shown);
  const std::string form = address.is_v4() ? shown : fmt::format("[{}]", shown);
  if (is_special_use(address))
    return fmt::format("resolves to private {}; allow with {}@{}", shown, name.text(), form);
  return fmt::format("resolves to {}, outside of the range of its rule; allow with {}@{}", shown,
                     name.text(), form);
}

Status add_rules(std::span<const std::string> texts, std::string_view list,
                 std::vector<HostPattern>& rules) {
  for (const std::string& text : texts) {
    auto rule = HostPattern::parse(text);
    if (!rule) {
      rule.error().message = fmt::format("{} rule {}", list, rule.error().message);
      return fail(std::move(rule).error());
    }
    rules.push_back(std::move(*rule));
  }
  return {};
}

Status check_deny(const HostPattern& rule) {
  const auto reject = [&](std::string_view reason, std::string hint) {
    return fail(Error{Code::kInvalid, fmt::format("deny rule '{}': {}", rule.text(), reason),
                      std::move(hint)});
  };
  if (rule.scope() == Scope::kPlain || rule.scope() == Scope::kProxy)
    return reject("plain/ and proxy/ say how to allow something and deny nothing",
                  "deny HOST:PORT without the scope");
  if (rule.range())
    return reject("'@' says where an allowed name may resolve and denies nothing",
                  "deny the name, or the range on its own");
  return {};
}

}  // namespace

std::string_view text(Protocol protocol) {
  switch (protocol) {
    case Protocol::kUdp:
      return "udp";
    case Protocol::kIcmp:
      return "icmp";
    case Protocol::kTcp:
      break;
  }
  return "tcp";
}

Result<Policy> Policy::create(std::span<const std::string> allow,
                              std::span<const std::string> deny) {
  Policy policy;
  TRY(add_rules(allow, "allow", policy.allow_));
  TRY(add_rules(deny, "deny", policy.deny_));
  for (const HostPattern& rule : policy.deny_) TRY(check_deny(rule));
  return policy;
}

Policy Policy::with(const HostPattern& allow) const {
  Policy more = *this;
  more.allow_.push_back(allow);
  return more;
}

std::optional<Verdict> Policy::denied(const HostName& name) const {
  for (const HostPattern& rule : deny_)
    if (rule.scope() == Scope::kAny && !rule.port() && rule.matches(name)) return denied_by(rule);
  return std::nullopt;
}

Verdict Policy::query(const HostName& name) const {
  if (const auto refusal = denied(name)) return *refusal;
  for (const HostPattern& rule : allow_)
    if (rule.matches(name)) return allowed_by(rule);
  return {};
}

bool Policy::allows_below(const HostName& name) const {
  return std::any_of(allow_.begin(), allow_.end(),
                     [&](const HostPattern& rule) { return rule.is_below(name); });
}

Verdict Policy::may_vouch(const HostName& name, const IpAddress& address,
                          std::span<const IpAddress> host_addresses) const {
  if (name == host_internal())
    return {false, Reason::kRebinding, {}, "host.internal is never looked up"};
  const HostPattern* too_short = nullptr;
  for (const HostPattern& rule : allow_) {
    if (!rule.matches(name)) continue;
    if (name_reaches(rule, address, host_addresses, false)) return allowed_by(rule);
    if (too_short == nullptr) too_short = &rule;
  }
  if (too_short == nullptr) return {};
  return {false, Reason::kRebinding, too_short->text(),
          rebinding_detail(name, address, host_addresses)};
}

Verdict Policy::dial(const Dial& dial) const {
  if (dial.protocol == Protocol::kUdp && dial.port == kQuicPort)
    return {false, Reason::kQuic, {}, {}};
  for (const HostPattern& rule : deny_)
    if (forbids(rule, dial.protocol, dial.port) &&
        (matches_any(rule, dial.names) || matches_any(rule, dial.aliases) ||
         rule.matches(dial.address)))
      return denied_by(rule);

  Reason refusal = dial.names.empty() ? Reason::kUnresolvedAddress : Reason::kNoAllowRule;
  std::string detail;
  for (const HostPattern& rule : allow_) {
    if (!permits(rule, dial.protocol, dial.port)) continue;
    const auto name = std::find_if(dial.names.begin(), dial.names.end(),
                                   [&](const HostName& n) { return rule.matches(n); });
    if (name == dial.names.end()) continue;
    if (name_reaches(rule, dial.address, dial.host_addresses, dial.stand_in))
      return allowed_by(rule);
    refusal = Reason::kRebinding;
    detail = rebinding_detail(*name, dial.address, dial.host_addresses);
  }
  for (const HostPattern& rule : allow_)
    if (permits(rule, dial.protocol, dial.port) && literal_reaches(rule, dial))
      return allowed_by(rule);
  return {false, refusal, {}, std::move(detail)};
}

Verdict Policy::name(const StreamName& stream, Reason refusal) const {
  for (const HostPattern& rule : deny_)
    if (forbids(rule, Protocol::kTcp, stream.port) && rule.matches(stream.name))
      return denied_by(rule, refusal);
  if (std::find(stream.names.begin(), stream.names.end(), stream.name) == stream.names.end())
    return {
        false,
        refusal,
        {},
        fmt::format("{} was not resolved to {} here", stream.name.text(), stream.address.text())};
  for (const HostPattern& rule : allow_)
    if (permits(rule, Protocol::kTcp, stream.port) && rule.matches(stream.name) &&
        name_reaches(rule, stream.address, {}, stream.stand_in))
      return allowed_by(rule);
  return {false, refusal, {}, {}};
}

Verdict Policy::literal(Protocol protocol, const IpAddress& address, uint16_t port,
                        std::span<const IpAddress> host_addresses) const {
  return dial({protocol, address, port, {}, {}, host_addresses});
}

std::optional<std::string> Policy::scoped(Scope scope, const Dial& dial) const {
  for (const HostPattern& rule : allow_) {
    if (rule.scope() != scope || !permits(rule, dial.protocol, dial.port)) continue;
    const bool by_name = matches_any(rule, dial.names) &&
                         name_reaches(rule, dial.address, dial.host_addresses, dial.stand_in);
    if (by_name || literal_reaches(rule, dial)) return rule.text();
  }
  return std::nullopt;
}

std::optional<std::string> Policy::plain(const Dial& dial) const {
  return scoped(Scope::kPlain, dial);
}

std::optional<std::string> Policy::proxy(const Dial& dial) const {
  return scoped(Scope::kProxy, dial);
}

Verdict Policy::proxy_target(const HostName& name, uint16_t port) const {
  if (name == host_internal())
    return {false, Reason::kHostDenied, {}, "host.internal means nothing to a proxy"};
  Verdict verdict = anywhere(name, Protocol::kTcp, port);
  if (!verdict.allow) verdict.reason = Reason::kHostDenied;
  return verdict;
}

Verdict Policy::proxy_target(const IpAddress& address, uint16_t port) const {
  Verdict verdict = literal(Protocol::kTcp, address, port, {});
  if (!verdict.allow) verdict.reason = Reason::kHostDenied;
  return verdict;
}

Verdict Policy::anywhere(const HostName& name, Protocol protocol,
                         std::optional<uint16_t> port) const {
  if (protocol == Protocol::kUdp && port == kQuicPort) return {false, Reason::kQuic, {}, {}};
  for (const HostPattern& rule : deny_)
    if (forbids(rule, protocol, port) && rule.matches(name)) return denied_by(rule);
  for (const HostPattern& rule : allow_)
    if (permits(rule, protocol, port) && rule.matches(name)) return allowed_by(rule);
  return {};
}

}  // namespace sandbox::policy
