#include "cli/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "policy/host_name.h"
#include "policy/policy.h"
#include "policy/reach.h"
#include "store/home.h"
#include "supervisor/network.h"

namespace sandbox::cli {

namespace {

using audit::Record;
using policy::Reason;

std::string bracketed(const IpAddress& address) {
  return address.is_v4() ? address.text() : fmt::format("[{}]", address.text());
}

std::string scope_of(const Record& record) {
  return record.proto == "udp" || record.proto == "icmp" ? record.proto + "/" : "";
}

// "udp/TARGET:123", "icmp/TARGET", "TARGET:443"
std::string rule_for(const Record& record, const std::string& target) {
  const bool with_port = record.port != 0 && record.proto != "icmp";
  return scope_of(record) + target + (with_port ? fmt::format(":{}", record.port) : "");
}

std::string name_of(const Record& record) {
  return record.names.empty() ? "" : record.names.front();
}

std::string shown_name(const Record& record) {
  return record.sni.empty() ? record.host : record.sni;
}

std::string where(const Record& record) {
  if (!record.address) return record.destination();
  return record.port == 0 ? record.address->text()
                          : fmt::format("{}:{}", bracketed(*record.address), record.port);
}

// Only what the parser of rules takes is proposed: a record may quote the guest.
void propose(Explanation& out, const std::string& rule) {
  const auto parsed = policy::HostPattern::parse(rule);
  if (!parsed) return;
  out.rule = parsed->text();
  out.reach = policy::allow_reach(*parsed);
}

Explanation no_allow_rule(const Record& record) {
  Explanation out;
  const std::string name = name_of(record);
  if (record.proto == "dns") {
    out.why = fmt::format("no allow rule is about {}, so the name was not even looked up", name);
    if (name == policy::host_internal().text())
      out.instead = "a service of this host is allowed with its port: host.internal:PORT";
    else
      propose(out, name);
    return out;
  }
  out.why = fmt::format("{} is allowed, but no rule allows {} to {}", name,
                        record.proto == "icmp" ? "ping" : record.proto, where(record));
  propose(out, rule_for(record, name));
  return out;
}

Explanation unresolved(const Record& record) {
  Explanation out;
  if (record.address == IpAddress(network::kGateway)) {
    out.why = fmt::format("{} is the way out of the sandbox itself, and serves nothing but names",
                          record.address->text());
    out.instead = "a service of this host is reached as host.internal:PORT, once that is allowed";
    return out;
  }
  out.why = fmt::format("no name that is allowed has led to {}, and no rule is about that address",
                        where(record));
  out.instead = "better by its name: a name rule keeps working when the address changes";
  if (record.address) propose(out, rule_for(record, bracketed(*record.address)));
  return out;
}

Explanation wrong_name(const Record& record) {
  Explanation out;
  const std::string shown = shown_name(record);
  if (shown.empty()) {
    out.why = fmt::format("what was sent to {} shows no name: {}", where(record), record.text);
    if (record.address)
      propose(out, rule_for({.address = record.address, .port = record.port},
                            bracketed(*record.address)));
    return out;
  }
  const bool vouched =
      std::find(record.names.begin(), record.names.end(), shown) != record.names.end();
  const std::string names = fmt::format("{}", fmt::join(record.names, ", "));
  out.why = vouched
                ? fmt::format("{} was asked for on a connection to {}, and no rule allows it there",
                              shown, where(record))
                : fmt::format("{} was asked for on a connection to {}, which was reached as {}",
                              shown, where(record), names.empty() ? "an address" : names);
  if (!record.rule.empty()) {
    out.why += fmt::format("; the deny rule '{}' forbids it", record.rule);
    out.instead = "a deny rule wins over every allow rule";
    return out;
  }
  propose(out, fmt::format("{}:{}", shown, record.port));
  if (!vouched)
    out.instead = "with that rule, look the name up first: its answers say where it may be";
  return out;
}

Explanation rebinding(const Record& record) {
  Explanation out;
  const std::string name = name_of(record);
  if (!record.address) return {.why = record.text};
  const IpAddress& address = *record.address;
  const bool never = is_never_by_name(address);
  out.why = fmt::format("{} resolves to {}, which is {}", name, address.text(),
                        never                     ? "loopback, link-local or multicast"
                        : is_special_use(address) ? "private, and its rule does not say that it may"
                                                  : "outside of the range of its rule, or an "
                                                    "address of this host");
  if (!never) propose(out, fmt::format("{}@{}", name, bracketed(address)));
  if (never) out.instead = "no name may lead there, whatever the rules say";
  if (!never && !is_special_use(address))
    out.instead = "no name may lead to an address of this host, whatever the rules say";
  return out;
}

Explanation quic(const Record& record) {
  Explanation out;
  out.why = "UDP 443 is never allowed: QUIC hides the name that gate 4 has to read";
  out.instead = "nothing is lost: clients fall back to TCP at once";
  if (!record.names.empty()) propose(out, fmt::format("{}:443", name_of(record)));
  return out;
}

Explanation allowed(const Record& record) {
  Explanation out;
  out.why = fmt::format("the allow rule '{}' is about it, and no deny rule is", record.rule);
  if (const auto rule = policy::HostPattern::parse(record.rule))
    out.reach = policy::allow_reach(*rule);
  return out;
}

}  // namespace

Result<DecisionId> parse_decision_id(std::string_view text) {
  const size_t colon = text.find(':');
  DecisionId id;
  id.sandbox = text.substr(0, colon);
  TRY(check_sandbox_name(id.sandbox));
  if (colon == std::string_view::npos) return id;
  const auto seq = parse_decimal(text.substr(colon + 1));
  if (!seq || *seq == 0)
    return fail(Error{Code::kInvalid, fmt::format("'{}' is not NAME or NAME:NUMBER", text),
                      fmt::format("sandbox policy log {} shows the numbers behind #", id.sandbox)});
  id.seq = *seq;
  return id;
}

Explanation explain(const Record& record) {
  if (record.verdict == audit::Outcome::kAllow) return allowed(record);
  const auto reason = policy::parse_reason(record.reason);
  switch (reason.value_or(Reason::kFlowLimit)) {
    case Reason::kNoAllowRule:
      return no_allow_rule(record);
    case Reason::kUnresolvedAddress:
      return unresolved(record);
    case Reason::kSniDenied:
    case Reason::kHostDenied:
      return wrong_name(record);
    case Reason::kRebinding:
      return rebinding(record);
    case Reason::kQuic:
      return quic(record);
    case Reason::kDenyRule:
      return {.why = fmt::format("the deny rule '{}' is about it", record.rule),
              .instead =
                  "a deny rule wins over every allow rule; only a sandbox that is started "
                  "without it may"};
    case Reason::kExpiredAddress:
      return {.why = fmt::format("{} led to {} once and does not any more", name_of(record),
                                 where(record)),
              .instead = "look the name up again; the client has kept an old answer"};
    case Reason::kSniUnreadable:
      return {.why = record.text,
              .instead = "where the server speaks first or no TLS is meant: plain/HOST:PORT"};
    case Reason::kEch:
      return {.why = record.text, .instead = "switch encrypted client hello off in the client"};
    case Reason::kUpstreamProxy:
      return {.why = record.text,
              .instead =
                  "the rules allow it; NO_PROXY names what goes around the proxy, and "
                  "--upstream-proxy none uses none"};
    case Reason::kAllowRule:
    case Reason::kFlowLimit:
      break;
  }
  return {.why = record.text.empty() ? record.reason : record.text,
          .instead = "a limit of the gateway, not a rule: docs/limits.md"};
}

}  // namespace sandbox::cli
