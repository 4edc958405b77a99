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

// host.internal:PORT is the only rule that speaks about our own address.
Verdict judge_host_internal(const policy::Policy& rules, Protocol protocol, uint16_t port) {
  const std::array names = {policy::host_internal()};
  return rules.dial({protocol, kLoopback, port, names, {}, {}});
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
  const Verdict verdict = policy_.query(name);
  out.decision = decided(verdict, name.text(), name.text(), fmt::format("--allow {}", name.text()));
  out.decision.names = {name};
  if (dns::is_private_reverse(name)) {
    out.action = NameAction::kPrivateReverse;
  } else if (verdict.allow && name == policy::host_internal()) {
    const bool address = question.type == dns::Type::kA || question.type == dns::Type::kAny;
    out.action = address ? NameAction::kHostInternal : NameAction::kNoData;
  } else if (verdict.allow) {
    out.action = question.type == dns::Type::kAaaa ? NameAction::kNoData : NameAction::kForward;
  }
  return out;
}

Resolved Gates::resolved(const HostName& question, std::span<const HostName> chain,
                         std::span<const dns::AddressRecord> answers, Instant now) {
  Resolved out;
  // The policy may have been replaced since the query left.
  Verdict verdict = policy_.query(question);
  std::string what = question.text();
  for (const HostName& alias : chain) {
    if (!verdict.allow) break;
    if (auto denied = policy_.denied(alias)) {
      verdict = std::move(*denied);
      what = fmt::format("{}, an alias of {},", question.text(), alias.text());
    }
  }
  out.decision =
      decided(verdict, question.text(), what, fmt::format("--allow {}", question.text()));
  out.decision.names = {question};
  if (!verdict.allow) return out;
  for (const dns::AddressRecord& answer : answers) {
    Verdict vouching = policy_.may_vouch(question, answer.address, out_of_bounds_);
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
  // Without a rule for host.internal our own address is like any other.
  if (address == IpAddress(config_.gateway) && policy_.query(policy::host_internal()).allow)
    return dial_host_internal(protocol, port);
  Ledger::Found found = ledger_.find(address, now);
  const policy::Dial question{protocol, address, port, found.names, found.aliases, out_of_bounds_};
  Verdict verdict = policy_.dial(question);

  DialDecision out;
  out.connect_to = address;
  std::vector<HostName> names = found.names;
  if (!verdict.allow && expiry_decides(question, found.expired)) {
    verdict.reason = Reason::kExpiredAddress;
    verdict.detail = fmt::format("{} no longer resolves to it", found.expired.front().text());
    names.insert(names.end(), found.expired.begin(), found.expired.end());
    if (attempt == Attempt::kFirst) out.renew = shown_names(found.expired);
  }
  out.decision = decided(verdict, {}, dial_text(protocol, address, port, names),
                         dial_hint(protocol, address, port, verdict, names));
  if (verdict.reason == Reason::kExpiredAddress) out.decision.hint.clear();
  out.decision.names = shown_names(std::move(names));
  if (!verdict.allow) return out;

  out.has_alternatives =
      std::any_of(found.names.begin(), found.names.end(),
                  [&](const HostName& name) { return ledger_.addresses_of(name, now) > 1; });
  out.flow.protocol = protocol;
  out.flow.address = address;
  out.flow.port = port;
  out.flow.rule = verdict.rule;
  out.flow.server_first = server_greets(port) || policy_.plain(question).has_value();
  out.flow.proxy = policy_.proxy(question).has_value();
  out.flow.hold = std::move(found.hold);
  return out;
}

// Would the dial be allowed if the expired names were still vouched for?
bool Gates::expiry_decides(const policy::Dial& dial, std::span<const HostName> expired) const {
  if (expired.empty()) return false;
  std::vector<HostName> all(dial.names.begin(), dial.names.end());
  all.insert(all.end(), expired.begin(), expired.end());
  policy::Dial widened = dial;
  widened.names = all;
  return policy_.dial(widened).allow;
}

DialDecision Gates::dial_host_internal(Protocol protocol, uint16_t port) const {
  DialDecision out;
  const Verdict verdict = judge_host_internal(policy_, protocol, port);
  const std::string what = fmt::format("{} host.internal:{}", policy::text(protocol), port);
  out.decision = decided(verdict, {}, what, fmt::format("--allow host.internal:{}", port));
  out.decision.names = {policy::host_internal()};
  out.connect_to = kLoopback;
  if (!verdict.allow) return out;
  out.flow.protocol = protocol;
  out.flow.address = config_.gateway;
  out.flow.port = port;
  out.flow.rule = verdict.rule;
  out.flow.server_first = server_greets(port) || verdict.rule.starts_with("plain/");
  return out;
}

// ---- gate 4 ----

std::vector<HostName> Gates::names_at(const Flow& flow, Instant now) {
  if (is_host_internal(flow)) return {policy::host_internal()};
  return ledger_.find(flow.address, now).names;
}

// A stream that shows no name: only where a rule speaks about the address itself.
Verdict Gates::nameless(const Flow& flow, Reason refusal, std::string_view why) const {
  Verdict verdict = is_host_internal(flow)
                        ? judge_host_internal(policy_, flow.protocol, flow.port)
                        : policy_.literal(flow.protocol, flow.address, flow.port, out_of_bounds_);
  if (verdict.allow) return verdict;
  return {false, refusal, {}, std::string(why)};
}

Decision Gates::stream_decision(const Flow& flow, const Verdict& verdict, std::string subject,
                                Instant now) {
  const uint16_t port = flow.tunnel ? flow.tunnel->port().value_or(flow.port) : flow.port;
  const std::string what = subject.empty() ? with_port(flow.address, flow.port) : subject;
  const std::string target = subject.empty() ? what : fmt::format("{}:{}", subject, port);
  Decision decision = decided(verdict, std::move(subject), what, fmt::format("--allow {}", target));
  decision.names = shown_names(names_at(flow, now));
  return decision;
}

Decision Gates::hello(Flow& flow, const tls::Hello& hello, Instant now) {
  const std::string shown = hello.server_name ? hello.server_name->text() : "";
  Verdict verdict;
  if (hello.ech) {
    verdict = {
        false, Reason::kEch, {}, "an encrypted hello hides the name it is for; switch ECH off"};
  } else if (flow.proxy && !flow.tunnel) {
    verdict = {false, Reason::kSniDenied, {}, "TLS to a proxy hides what is asked of it"};
  } else if (!hello.server_name) {
    verdict = nameless(flow, Reason::kSniDenied, "the hello shows no name");
  } else if (flow.tunnel) {
    verdict = policy_.proxy_target(*hello.server_name, flow.tunnel->port().value_or(kHttps));
    if (!verdict.allow) verdict.reason = Reason::kSniDenied;
  } else {
    const std::vector<HostName> names = names_at(flow, now);
    verdict =
        policy_.name({*hello.server_name, flow.port, flow.address, names}, Reason::kSniDenied);
  }
  Decision decision = stream_decision(flow, verdict, shown, now);
  if (verdict.reason == Reason::kEch || allowed_already(hello.server_name, flow.port))
    decision.hint.clear();
  if (verdict.allow) flow.shown = hello.server_name;
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

Verdict Gates::judge_proxied(const http::Request& request, const Flow& flow) const {
  const http::Authority& target = *request.host;
  const uint16_t inside =
      flow.tunnel ? flow.tunnel->port().value_or(request.default_port) : request.default_port;
  const uint16_t port = target.port().value_or(inside);
  return target.name() != nullptr ? policy_.proxy_target(*target.name(), port)
                                  : policy_.proxy_target(*target.address(), port);
}

Verdict Gates::judge_request(const Flow& flow, const http::Request& request, Instant now) {
  if (!request.host) return nameless(flow, Reason::kHostDenied, "the request names no host");
  const bool asks_proxy =
      request.form == http::Form::kAbsolute || request.form == http::Form::kAuthority;
  if (flow.proxy && (asks_proxy || flow.tunnel)) return judge_proxied(request, flow);
  if (request.form == http::Form::kAuthority)
    return {false,
            Reason::kHostDenied,
            {},
            fmt::format("CONNECT is for proxies; allow one with proxy/HOST:{}", flow.port)};
  if (const IpAddress* address = request.host->address()) {
    if (*address == flow.address)
      return nameless(flow, Reason::kHostDenied, "no rule names the address");
    return {false, Reason::kHostDenied, {}, "the request names another address than it goes to"};
  }
  const std::vector<HostName> names = names_at(flow, now);
  return policy_.name({*request.host->name(), flow.port, flow.address, names}, Reason::kHostDenied);
}

// A rule has the name already: what is missing is that it was resolved to this address, and one
// more rule would not help.
bool Gates::allowed_already(const std::optional<HostName>& name, uint16_t port) const {
  return name && policy_.proxy_target(*name, port).allow;
}

Decision Gates::request(Flow& flow, const http::Request& request, Instant now) {
  const Verdict verdict = judge_request(flow, request, now);
  if (verdict.allow && request.form == http::Form::kAuthority) flow.tunnel = request.host;
  std::string subject;
  if (request.host) {
    const HostName* name = request.host->name();
    subject = name != nullptr ? name->text() : http::Authority(*request.host->address()).text();
    if (verdict.allow && name != nullptr) flow.shown = *name;
  }
  Decision decision = stream_decision(flow, verdict, subject, now);
  if (request.form == http::Form::kAuthority && !verdict.allow && !flow.proxy)
    decision.hint.clear();
  if (request.host && request.host->name() != nullptr &&
      allowed_already(*request.host->name(), flow.port))
    decision.hint.clear();
  return decision;
}

Decision Gates::opaque(const Flow& flow) const {
  const uint16_t port = flow.tunnel ? flow.tunnel->port().value_or(kHttps) : flow.port;
  Verdict verdict{true, Reason::kAllowRule, flow.rule, {}};
  if (flow.proxy && !flow.tunnel) {
    verdict = {false, Reason::kHostDenied, {}, "a proxy is spoken to in HTTP"};
  } else if (port == kHttps && !flow.server_first) {
    verdict = nameless(flow, Reason::kSniUnreadable, "neither TLS nor HTTP on port 443");
  }
  Decision decision = decided(verdict, {}, with_port(flow.address, flow.port), {});
  decision.names = held_names(flow);
  return decision;
}

Decision Gates::rejudge(const Flow& flow, Instant now) {
  const DialDecision again = dial(flow.protocol, flow.address, flow.port, now, Attempt::kRenewed);
  if (!again.decision.allow || !flow.shown) return again.decision;
  if (flow.proxy) {
    const uint16_t port = flow.tunnel ? flow.tunnel->port().value_or(kHttps) : uint16_t{80};
    return stream_decision(flow, policy_.proxy_target(*flow.shown, port), flow.shown->text(), now);
  }
  const std::vector<HostName> names = names_at(flow, now);
  const Verdict verdict =
      policy_.name({*flow.shown, flow.port, flow.address, names}, Reason::kSniDenied);
  return stream_decision(flow, verdict, flow.shown->text(), now);
}

void Gates::set_host_addresses(std::vector<IpAddress> all) {
  config_.host_addresses = std::move(all);
  out_of_bounds_ = config_.host_addresses;
  out_of_bounds_.emplace_back(config_.gateway);
}

}  // namespace sandbox::gateway
