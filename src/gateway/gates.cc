#include "gateway/gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace sandbox::gateway {

using policy::HostName;
using policy::Protocol;
using policy::Reason;
using policy::Verdict;

namespace {

constexpr Ipv4 kLoopback{0x7F000001};
constexpr uint16_t kHttps = 443;
// What a record or a message shows of the names that share an address.
constexpr size_t kShownNames = 32;

const HostName& arpa() {
  static const HostName zone = *HostName::parse("arpa");
  return zone;
}

// Servers there greet first: FTP, SSH, SMTP, POP3, IMAP, submission, MySQL, PostgreSQL.
bool server_greets(uint16_t port) {
  constexpr std::array<uint16_t, 8> kPorts = {21, 22, 25, 110, 143, 587, 3306, 5432};
  return std::find(kPorts.begin(), kPorts.end(), port) != kPorts.end();
}

std::string with_port(const IpAddress& address, uint16_t port) {
  const std::string host = address.is_v4() ? address.text() : fmt::format("[{}]", address.text());
  return port == 0 ? host : fmt::format("{}:{}", host, port);
}

std::string_view scope_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kUdp:
      return "udp/";
    case Protocol::kIcmp:
      return "icmp/";
    case Protocol::kTcp:
      break;
  }
  return "";
}

// "example.org was refused (no-allow-rule)"; a rule or a detail says more than the bare reason.
std::string sentence(std::string_view what, const Verdict& verdict) {
  const std::string_view reason = policy::text(verdict.reason);
  if (verdict.allow) return fmt::format("{} is allowed by rule '{}'", what, verdict.rule);
  if (!verdict.detail.empty())
    return fmt::format("{} is refused ({}): {}", what, reason, verdict.detail);
  if (!verdict.rule.empty())
    return fmt::format("{} is refused ({}) by rule '{}'", what, reason, verdict.rule);
  return fmt::format("{} is refused ({})", what, reason);
}

Decision decided(const Verdict& verdict, std::string subject, std::string_view what,
                 std::string hint) {
  Decision decision;
  decision.allow = verdict.allow;
  decision.reason = verdict.reason;
  decision.rule = verdict.rule;
  decision.subject = std::move(subject);
  decision.text = sentence(what, verdict);
  // A denial by rule is meant; there the way out is not one more rule.
  const bool by_rule = !verdict.rule.empty() && verdict.reason != Reason::kRebinding;
  if (!verdict.allow && !by_rule) decision.hint = std::move(hint);
  return decision;
}

std::vector<HostName> shown_names(std::vector<HostName> names) {
  if (names.size() > kShownNames) names.erase(names.begin() + kShownNames, names.end());
  return names;
}

std::string dial_text(Protocol protocol, const IpAddress& address, uint16_t port,
                      const std::vector<HostName>& names) {
  std::string out = fmt::format("{} {}", policy::text(protocol), with_port(address, port));
  if (!names.empty()) out += fmt::format(" ({})", names.front().text());
  return out;
}

std::string dial_hint(Protocol protocol, const IpAddress& address, uint16_t port,
                      const Verdict& verdict, const std::vector<HostName>& names) {
  if (verdict.reason == Reason::kQuic) return "nothing is lost: clients fall back to TCP";
  const uint16_t shown = protocol == Protocol::kIcmp ? uint16_t{0} : port;
  const std::string target =
      names.empty() ? with_port(address, shown)
                    : names.front().text() + (shown == 0 ? "" : fmt::format(":{}", shown));
  return fmt::format("--allow {}{}", scope_of(protocol), target);
}

// Where the bytes of a stream end up: the port of its tunnel, which a CONNECT always names, or its
// own.
uint16_t port_inside(const Flow& flow) {
  return flow.tunnel ? *flow.tunnel->port() : flow.port;
}

// "a.example.org", "192.0.2.1", "[2001:db8::1]"
std::string host_of(const http::Authority& authority) {
  const HostName* name = authority.name();
  return name != nullptr ? name->text() : http::Authority(*authority.address()).text();
}

// Is it for a proxy, or for what is behind one, to say where a request goes?
bool is_proxied(const Flow& flow, const http::Request& request) {
  const bool asks_proxy =
      request.form == http::Form::kAbsolute || request.form == http::Form::kAuthority;
  return flow.proxy && (asks_proxy || flow.tunnel);
}

// Whom a request is for, and at which port: the one it names only where that decides where it goes.
std::optional<http::Authority> asked_of(const Flow& flow, const http::Request& request) {
  if (!request.host) return std::nullopt;
  uint16_t port = flow.port;
  if (is_proxied(flow, request))
    port = request.host->port().value_or(flow.tunnel ? port_inside(flow) : request.default_port);
  return request.host->name() != nullptr ? http::Authority(*request.host->name(), port)
                                         : http::Authority(*request.host->address(), port);
}

// host.internal:PORT is the only rule that speaks about our own address.
policy::Dial host_internal_dial(Protocol protocol, uint16_t port) {
  return {protocol, kLoopback, port, {&policy::host_internal(), 1}, {}, {}};
}

}  // namespace

// ---- gate 1 ----

NameDecision Gates::query(const dns::Question& question) const {
  NameDecision out;
  const std::string shown = escape_terminal(question.name.text());
  if (!question.name.host) {
    const Verdict verdict{false, Reason::kNoAllowRule, {}, "it is no host name"};
    out.decision = decided(verdict, shown, shown, {});
    return out;
  }
  const HostName& name = *question.name.host;
  const Verdict verdict = granted_.query(name);
  out.decision = decided(verdict, name.text(), name.text(), fmt::format("--allow {}", name.text()));
  out.decision.names = {name};
  if (dns::is_private_reverse(name)) {
    out.action = NameAction::kPrivateReverse;
  } else if (verdict.allow && name == policy::host_internal()) {
    const bool address = question.type == dns::Type::kA || question.type == dns::Type::kAny;
    out.action = address ? NameAction::kHostInternal : NameAction::kNoData;
  } else if (verdict.allow && resolved_by_proxy(name)) {
    const bool address = question.type == dns::Type::kA || question.type == dns::Type::kAny;
    out.action = address ? NameAction::kStandIn : NameAction::kNoData;
    out.decision.via = config_.proxy->text();
  } else if (verdict.allow) {
    out.action = question.type == dns::Type::kAaaa ? NameAction::kNoData : NameAction::kForward;
  }
  return out;
}

Resolved Gates::resolved(const HostName& question, std::span<const HostName> chain,
                         std::span<const dns::AddressRecord> answers, Instant now) {
  Resolved out;
  // The policy may have been replaced since the query left.
  Verdict verdict = granted_.query(question);
  std::string what = question.text();
  for (const HostName& alias : chain) {
    if (!verdict.allow) break;
    if (auto denied = granted_.denied(alias)) {
      verdict = std::move(*denied);
      what = fmt::format("{}, an alias of {},", question.text(), alias.text());
    }
  }
  out.decision =
      decided(verdict, question.text(), what, fmt::format("--allow {}", question.text()));
  out.decision.names = {question};
  if (!verdict.allow) return out;
  for (const dns::AddressRecord& answer : answers) {
    Verdict vouching = granted_.may_vouch(question, answer.address, out_of_bounds_);
    if (vouching.allow && is_stand_in(answer.address))
      vouching = {false, Reason::kRebinding, {}, "resolves to where names of the proxy stand"};
    const auto ttl = std::chrono::seconds(answer.ttl);
    if (vouching.allow && !ledger_.vouch(answer.address, question, chain, ttl, now))
      vouching = {false, Reason::kFlowLimit, {}, "every address in the ledger is in use"};
    if (vouching.allow) {
      out.vouched.push_back(answer.address);
      continue;
    }
    Decision refusal =
        decided(vouching, question.text(), question.text(),
                fmt::format("--allow {}@{}", question.text(), answer.address.text()));
    // No rule leads to what no name may reach.
    if (is_never_by_name(answer.address) || vouching.reason == Reason::kFlowLimit ||
        std::find(out_of_bounds_.begin(), out_of_bounds_.end(), answer.address) !=
            out_of_bounds_.end())
      refusal.hint.clear();
    refusal.names = {question};
    out.refused.push_back({answer.address, std::move(refusal)});
  }
  if (out.vouched.empty() && !out.refused.empty()) out.decision = out.refused.front().decision;
  return out;
}

// ---- gates 2 and 3 ----

DialDecision Gates::dial(Protocol protocol, const IpAddress& address, uint16_t port, Instant now,
                         Attempt attempt) {
  DialDecision out = dial_by(policy_, protocol, address, port, now, attempt);
  if (out.decision.allow) return out;
  for (const Grant& grant : grants_) {
    auto once = std::make_shared<const policy::Policy>(policy_.with(grant.rule));
    DialDecision granted = dial_by(*once, protocol, address, port, now, attempt);
    if (!granted.decision.allow && granted.renew.empty()) continue;
    granted.flow.grant = grant.rule;
    granted.flow.once = std::move(once);
    return granted;
  }
  return out;
}

DialDecision Gates::dial_by(const policy::Policy& rules, Protocol protocol,
                            const IpAddress& address, uint16_t port, Instant now, Attempt attempt) {
  // Without a rule for host.internal our own address is like any other.
  if (address == IpAddress(config_.gateway) && rules.query(policy::host_internal()).allow)
    return dial_host_internal(rules, protocol, port, config_.gateway);
  Ledger::Found found = ledger_.find(address, now);
  const policy::Dial question{
      protocol, address, port, found.names, found.aliases, out_of_bounds_, is_stand_in(address)};
  Verdict verdict = rules.dial(question);

  DialDecision out;
  out.connect_to = address;
  if (verdict.allow && goes_through_proxy(address, found.names))
    route_through_proxy(question, verdict, out);
  std::vector<HostName> names = found.names;
  if (!verdict.allow && expiry_decides(rules, question, found.expired)) {
    verdict.reason = Reason::kExpiredAddress;
    verdict.detail = fmt::format("{} no longer resolves to it", found.expired.front().text());
    names.insert(names.end(), found.expired.begin(), found.expired.end());
    if (attempt == Attempt::kFirst) out.renew = shown_names(found.expired);
  }
  out.decision = decided(verdict, {}, dial_text(protocol, address, port, names),
                         dial_hint(protocol, address, port, verdict, names));
  if (verdict.reason == Reason::kExpiredAddress) out.decision.hint.clear();
  if (verdict.reason == Reason::kUpstreamProxy) out.decision.hint.clear();
  out.decision.names = shown_names(std::move(names));
  if (!verdict.allow) return out;
  if (out.through_proxy) out.decision.via = config_.proxy->text();

  out.has_alternatives =
      std::any_of(found.names.begin(), found.names.end(),
                  [&](const HostName& name) { return ledger_.addresses_of(name, now) > 1; });
  out.flow.protocol = protocol;
  out.flow.address = address;
  out.flow.port = port;
  out.flow.rule = verdict.rule;
  out.flow.server_first = server_greets(port) || rules.plain(question).has_value();
  out.flow.proxy = rules.proxy(question).has_value();
  out.flow.hold = std::move(found.hold);
  return out;
}

// Names in the ledger that were looked up are those that NO_PROXY names; where they lead is open.
bool Gates::goes_through_proxy(const IpAddress& address, std::span<const HostName> names) const {
  if (is_stand_in(address)) return true;  // it leads nowhere, whatever networks NO_PROXY names
  return config_.proxy && names.empty() && !config_.proxy->bypass.matches(address);
}

void Gates::route_through_proxy(const policy::Dial& dial, Verdict& verdict,
                                DialDecision& out) const {
  if (dial.protocol != Protocol::kTcp) {
    verdict = {false,
               Reason::kUpstreamProxy,
               {},
               fmt::format("{} cannot go through the upstream proxy {}; NO_PROXY names what goes "
                           "around it",
                           policy::text(dial.protocol), config_.proxy->text())};
  } else if (!dial.stand_in) {
    out.through_proxy.emplace(dial.address, dial.port);
  } else if (dial.names.front().text() == config_.proxy->host) {
    verdict = {false, Reason::kUpstreamProxy, {}, "it is the upstream proxy itself"};
  } else {
    out.through_proxy.emplace(dial.names.front(), dial.port);
  }
}

// Would the dial be allowed if the expired names were still vouched for?
bool Gates::expiry_decides(const policy::Policy& rules, const policy::Dial& dial,
                           std::span<const HostName> expired) {
  if (expired.empty()) return false;
  std::vector<HostName> all(dial.names.begin(), dial.names.end());
  all.insert(all.end(), expired.begin(), expired.end());
  policy::Dial widened = dial;
  widened.names = all;
  return rules.dial(widened).allow;
}

DialDecision Gates::dial_host_internal(const policy::Policy& rules, Protocol protocol,
                                       uint16_t port, Ipv4 gateway) {
  DialDecision out;
  const policy::Dial question = host_internal_dial(protocol, port);
  const Verdict verdict = rules.dial(question);
  const std::string what = fmt::format("{} host.internal:{}", policy::text(protocol), port);
  out.decision = decided(verdict, {}, what, fmt::format("--allow host.internal:{}", port));
  out.decision.names = {policy::host_internal()};
  out.connect_to = kLoopback;
  if (!verdict.allow) return out;
  out.flow.protocol = protocol;
  out.flow.address = gateway;
  out.flow.port = port;
  out.flow.rule = verdict.rule;
  out.flow.server_first = server_greets(port) || rules.plain(question).has_value();
  out.flow.proxy = rules.proxy(question).has_value();
  return out;
}

// ---- gate 4 ----

std::vector<HostName> Gates::names_at(const Flow& flow, Instant now) {
  if (is_host_internal(flow)) return {policy::host_internal()};
  return ledger_.find(flow.address, now).names;
}

// Where no name is shown: is there a rule about the address itself? In a tunnel that is the address
// the proxy was asked for.
Verdict Gates::by_address(const Flow& flow) const {
  if (flow.tunnel)
    return flow.tunnel->address() != nullptr ? judge_proxied(rules_of(flow), *flow.tunnel)
                                             : Verdict();
  if (is_host_internal(flow))
    return rules_of(flow).dial(host_internal_dial(flow.protocol, flow.port));
  if (is_stand_in(flow.address)) return {};
  return rules_of(flow).literal(flow.protocol, flow.address, flow.port, out_of_bounds_);
}

Verdict Gates::nameless(const Flow& flow, Reason refusal, std::string_view why) const {
  Verdict verdict = by_address(flow);
  if (verdict.allow) return verdict;
  return {false, refusal, {}, std::string(why)};
}

Verdict Gates::judge_proxied(const policy::Policy& rules, const http::Authority& target) {
  return target.name() != nullptr ? rules.proxy_target(*target.name(), *target.port())
                                  : rules.proxy_target(*target.address(), *target.port());
}

// What a stream shows that goes where it was dialled, not where a proxy takes it.
Verdict Gates::judge_direct(const Flow& flow, const http::Authority& shown, Reason refusal,
                            Instant now) {
  if (shown.name() == nullptr) return nameless(flow, refusal, "no rule names the address");
  const std::vector<HostName> names = names_at(flow, now);
  return rules_of(flow).name(
      {*shown.name(), flow.port, flow.address, names, is_stand_in(flow.address)}, refusal);
}

Decision Gates::stream_decision(const Flow& flow, const Verdict& verdict, ShownBy by,
                                const std::optional<http::Authority>& shown, Instant now) {
  std::string subject = shown ? host_of(*shown) : std::string();
  const std::string what = shown ? subject : with_port(flow.address, flow.port);
  std::string hint = fmt::format("--allow {}", shown ? shown->text() : what);
  // The rules have the name already: what is missing is that it was resolved to this address.
  if (shown && shown->name() != nullptr &&
      policy_.anywhere(*shown->name(), Protocol::kTcp, shown->port()).allow)
    hint.clear();
  Decision decision = decided(verdict, std::move(subject), what, std::move(hint));
  decision.shown_by = shown ? by : ShownBy::kNothing;
  decision.names = shown_names(names_at(flow, now));
  return decision;
}

Decision Gates::hello(Flow& flow, const tls::Hello& hello, Instant now) {
  std::optional<http::Authority> shown;
  if (hello.server_name) shown.emplace(*hello.server_name, port_inside(flow));
  Verdict verdict;
  if (hello.ech) {
    verdict = {
        false, Reason::kEch, {}, "an encrypted hello hides the name it is for; switch ECH off"};
  } else if (flow.proxy && !flow.tunnel) {
    verdict = {false, Reason::kSniDenied, {}, "TLS to a proxy hides what is asked of it"};
  } else if (!shown) {
    verdict = nameless(flow, Reason::kSniDenied, "the hello shows no name");
  } else if (flow.tunnel) {
    verdict = judge_proxied(rules_of(flow), *shown);
    if (!verdict.allow) verdict.reason = Reason::kSniDenied;
  } else {
    verdict = judge_direct(flow, *shown, Reason::kSniDenied, now);
  }
  Decision decision = stream_decision(flow, verdict, ShownBy::kServerName, shown, now);
  if (verdict.reason == Reason::kEch) decision.hint.clear();
  if (!verdict.allow) return decision;
  flow.shown = std::move(shown);
  flow.shown_to_proxy = flow.tunnel.has_value();
  return decision;
}

Decision Gates::unreadable(const Flow& flow, std::string_view why) const {
  const Verdict verdict{false, Reason::kSniUnreadable, {}, std::string(why)};
  Decision decision = decided(
      verdict, {}, fmt::format("the TLS hello to {}", with_port(flow.address, flow.port)), {});
  decision.names = held_names(flow);
  return decision;
}

Decision Gates::malformed(const Flow& flow, std::string_view why) const {
  const Verdict verdict{false, Reason::kHostDenied, {}, std::string(why)};
  Decision decision = decided(
      verdict, {}, fmt::format("the HTTP request to {}", with_port(flow.address, flow.port)), {});
  decision.names = held_names(flow);
  return decision;
}

std::vector<HostName> Gates::held_names(const Flow& flow) {
  std::vector<HostName> names;
  for (const auto& pair : flow.hold) names.push_back(pair->name);
  return shown_names(std::move(names));
}

Verdict Gates::judge_request(const Flow& flow, const http::Request& request,
                             const std::optional<http::Authority>& asked, Instant now) {
  if (!asked) return nameless(flow, Reason::kHostDenied, "the request names no host");
  if (is_proxied(flow, request)) return judge_proxied(rules_of(flow), *asked);
  if (request.form == http::Form::kAuthority)
    return {false,
            Reason::kHostDenied,
            {},
            fmt::format("CONNECT is for proxies; allow one with proxy/HOST:{}", flow.port)};
  if (asked->address() != nullptr && *asked->address() != flow.address)
    return {false, Reason::kHostDenied, {}, "the request names another address than it goes to"};
  return judge_direct(flow, *asked, Reason::kHostDenied, now);
}

Decision Gates::request(Flow& flow, const http::Request& request, Instant now) {
  std::optional<http::Authority> asked = asked_of(flow, request);
  const Verdict verdict = judge_request(flow, request, asked, now);
  if (verdict.allow && request.form == http::Form::kAuthority) flow.tunnel = request.host;
  Decision decision = stream_decision(flow, verdict, ShownBy::kHostHeader, asked, now);
  if (request.form == http::Form::kAuthority && !flow.proxy) decision.hint.clear();
  if (!verdict.allow || !asked) return decision;
  flow.shown = std::move(asked);
  flow.shown_to_proxy = is_proxied(flow, request);
  return decision;
}

Decision Gates::opaque(const Flow& flow) const {
  Verdict verdict{true, Reason::kAllowRule, flow.rule, {}};
  if (flow.proxy && !flow.tunnel) {
    verdict = {false, Reason::kHostDenied, {}, "a proxy is spoken to in HTTP"};
  } else if (port_inside(flow) == kHttps && !flow.server_first) {
    verdict = nameless(flow, Reason::kSniUnreadable, "neither TLS nor HTTP on port 443");
  }
  Decision decision = decided(verdict, {}, with_port(flow.address, flow.port), {});
  decision.names = held_names(flow);
  return decision;
}

Decision Gates::rejudge(Flow& flow, Instant now) {
  if (flow.grant) flow.once = std::make_shared<const policy::Policy>(policy_.with(*flow.grant));
  const policy::Policy& rules = rules_of(flow);
  const DialDecision again =
      dial_by(rules, flow.protocol, flow.address, flow.port, now, Attempt::kRenewed);
  if (!again.decision.allow) return again.decision;
  const Verdict tunnel = flow.tunnel ? judge_proxied(rules, *flow.tunnel) : Verdict{.allow = true};
  if (!tunnel.allow) return stream_decision(flow, tunnel, ShownBy::kNothing, flow.tunnel, now);
  if (!flow.shown) return again.decision;
  const Verdict verdict = flow.shown_to_proxy
                              ? judge_proxied(rules, *flow.shown)
                              : judge_direct(flow, *flow.shown, Reason::kSniDenied, now);
  return stream_decision(flow, verdict, ShownBy::kNothing, flow.shown, now);
}

// ---- ask ----

std::optional<policy::HostPattern> Gates::missing_rule(const HostName& name) const {
  if (granted_.query(name).reason != Reason::kNoAllowRule) return std::nullopt;
  // Programs ask for the names of addresses by the way; nobody should be asked about that.
  if (name.in_zone(arpa())) return std::nullopt;
  // A service of the host needs a port, which a lookup does not tell.
  const auto rule = policy::HostPattern::parse(name.text());
  if (!rule || name == policy::host_internal()) return std::nullopt;
  return *rule;
}

std::optional<policy::HostPattern> Gates::missing_rule(const IpAddress& address, uint16_t port,
                                                       Instant now) {
  const DialDecision refused = dial(Protocol::kTcp, address, port, now, Attempt::kRenewed);
  if (refused.decision.allow) return std::nullopt;
  std::string target;
  if (refused.decision.reason == Reason::kNoAllowRule && !refused.decision.names.empty()) {
    target = refused.decision.names.front().text();
  } else if (refused.decision.reason == Reason::kUnresolvedAddress && !is_never_by_name(address) &&
             std::ranges::find(out_of_bounds_, address) == out_of_bounds_.end()) {
    target = with_port(address, 0);
  }
  const auto rule = policy::HostPattern::parse(fmt::format("{}:{}", target, port));
  if (!rule) return std::nullopt;
  const policy::Policy rules = policy_.with(*rule);
  if (!dial_by(rules, Protocol::kTcp, address, port, now, Attempt::kRenewed).decision.allow)
    return std::nullopt;
  return *rule;
}

bool Gates::has_decided(const policy::HostPattern& missing) const {
  if (const auto address = missing.exact_address())
    return policy_.literal(Protocol::kTcp, *address, missing.port().value_or(0), out_of_bounds_)
               .reason != Reason::kUnresolvedAddress;
  const HostName* name = missing.exact_name();
  if (name == nullptr) return true;
  const Verdict verdict = missing.port() ? policy_.anywhere(*name, Protocol::kTcp, missing.port())
                                         : policy_.query(*name);
  return verdict.reason != Reason::kNoAllowRule;
}

void Gates::grant(const policy::HostPattern& rule, Instant now) {
  grants_.push_back({rule, now + kGrantLife});
  renew_granted();
}

void Gates::used(const Flow& flow) {
  if (!flow.grant) return;
  std::erase_if(grants_, [&](const Grant& grant) { return grant.rule == *flow.grant; });
  renew_granted();
}

void Gates::expire_grants(Instant now) {
  if (next_grant_end() > now) return;
  std::erase_if(grants_, [now](const Grant& grant) { return grant.until <= now; });
  renew_granted();
}

Instant Gates::next_grant_end() const {
  return grants_.empty() ? Instant::never() : grants_.front().until;
}

void Gates::replace_policy(policy::Policy policy) {
  policy_ = std::move(policy);
  renew_granted();
}

void Gates::renew_granted() {
  granted_ = policy_;
  for (const Grant& grant : grants_) granted_ = granted_.with(grant.rule);
}

void Gates::set_host_addresses(std::vector<IpAddress> all) {
  config_.host_addresses = std::move(all);
  out_of_bounds_ = config_.host_addresses;
  out_of_bounds_.emplace_back(config_.gateway);
  if (config_.proxy)
    out_of_bounds_.insert(out_of_bounds_.end(), config_.proxy->addresses.begin(),
                          config_.proxy->addresses.end());
}

}  // namespace sandbox::gateway
