// `policy check` put to the rules the gates use. The subject is written like a rule for one host,
// so the same parser reads it and the same mistakes get the same answers.

#include <fmt/format.h>

#include <algorithm>

#include "policy/policy.h"

namespace sandbox::policy {

namespace {

Protocol protocol_of(Scope scope) {
  if (scope == Scope::kUdp) return Protocol::kUdp;
  if (scope == Scope::kIcmp) return Protocol::kIcmp;
  return Protocol::kTcp;
}

// An address without a port: a deny must name it whole, an allow rule on any port is enough.
Verdict any_port(const Policy& policy, const IpAddress& address, Scope scope) {
  for (const HostPattern& rule : policy.deny_rules())
    if ((rule.scope() == Scope::kAny || rule.scope() == scope) && !rule.port() &&
        rule.matches(address))
      return {false, Reason::kDenyRule, rule.text(), {}};
  for (const HostPattern& rule : policy.allow_rules()) {
    if (scope == Scope::kUdp && rule.scope() != Scope::kUdp) continue;
    if (rule.matches(address) &&
        (rule.is_exactly(address) || !is_never_by_name(address) || rule.is_wholly_never_by_name()))
      return {true, Reason::kAllowRule, rule.text(), {}};
  }
  return {false, Reason::kUnresolvedAddress, {}, {}};
}

}  // namespace

Result<Verdict> Policy::check(std::string_view subject) const {
  ASSIGN(const HostPattern asked, HostPattern::parse(subject));
  const auto address = asked.exact_address();
  const HostName* name = asked.exact_name();
  const auto at = asked.range();
  if (asked.scope() == Scope::kPlain || asked.scope() == Scope::kProxy)
    return fail(Code::kInvalid, "'{}': a check is about udp/, icmp/ or TCP, which has no prefix",
                subject);
  if ((!address && name == nullptr) || (at && *at != Cidr::host(at->base())))
    return fail(Error{Code::kInvalid, fmt::format("'{}': a check is about one host", subject),
                      "write HOST, HOST:PORT, ADDRESS:PORT or HOST@ADDRESS:PORT"});

  const Protocol protocol = protocol_of(asked.scope());
  const bool any = asked.scope() != Scope::kIcmp && !asked.port();
  if (address) {
    if (any) return any_port(*this, *address, asked.scope());
    return literal(protocol, *address, asked.port().value_or(0), {});
  }
  if (at) return check_at(*name, at->base(), protocol, asked.port(), any);
  if (any && asked.scope() == Scope::kAny) return query(*name);
  return anywhere(*name, protocol, asked.port());
}

Verdict Policy::check_at(const HostName& name, const IpAddress& address, Protocol protocol,
                         std::optional<uint16_t> port, bool any) const {
  Verdict lookup = query(name);
  if (!lookup.allow) return lookup;
  Verdict vouched = may_vouch(name, address, {});
  if (any || !vouched.allow) return vouched;
  return dial({protocol, address, port.value_or(0), {&name, 1}, {}, {}});
}

}  // namespace sandbox::policy
