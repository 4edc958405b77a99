#include "gateway/name_service.h"

#include <fmt/format.h>

namespace sandbox::gateway {

namespace {

// How long a client may keep the address of host.internal.
constexpr uint32_t kOwnTtl = 60;  // and that of a stand-in
constexpr size_t kMaxRenewals = 8;

std::string explanation(const Decision& decision) {
  if (decision.hint.empty()) return decision.text;
  return fmt::format("{}; to allow it: {}", decision.text, decision.hint);
}

// RFC 8914: "Prohibited" for what no rule permits, "Blocked" for what a rule or the address
// forbids.
dns::Ede code_of(const Decision& decision) {
  return decision.reason == policy::Reason::kNoAllowRule ? dns::Ede::kProhibited
                                                         : dns::Ede::kBlocked;
}

std::vector<policy::HostName> host_names(const std::vector<dns::Name>& chain) {
  std::vector<policy::HostName> out;
  for (const dns::Name& name : chain)
    if (name.host) out.push_back(*name.host);
  return out;
}

}  // namespace

struct NameService::Exchange {
  dns::Query query;
  Transport transport;
  Reply reply;

  void send(Bytes message) const {
    const size_t limit = transport == Transport::kUdp ? dns::udp_limit(query) : 0xFFFF;
    reply(dns::fit(query, std::move(message), limit));
  }
};

NameService::NameService(Gates& gates, Upstream upstream, Now now, Report report)
    : gates_(gates),
      upstream_(std::move(upstream)),
      now_(std::move(now)),
      report_(std::move(report)),
      alive_(std::make_shared<bool>(true)) {}

NameService::~NameService() {
  *alive_ = false;
}

void NameService::answer(ByteView message, Transport transport, Reply reply) {
  auto parsed = dns::parse_query(message);
  if (const auto* bad = std::get_if<dns::BadQuery>(&parsed)) {
    if (bad->answerable) reply(dns::build_malformed(*bad));
    return;
  }
  auto exchange = std::make_shared<Exchange>(
      Exchange{std::move(std::get<dns::Query>(parsed)), transport, std::move(reply)});
  judge(exchange, Asked::kNot);
}

void NameService::judge(const std::shared_ptr<Exchange>& exchange, Asked asked) {
  const dns::Query& query = exchange->query;
  NameDecision named = gates_.query(query.question);
  if (named.action == NameAction::kRefuse && asked == Asked::kNot && hold(named, exchange)) return;
  if (!named.decision.allow && asked == Asked::kAnswered) named.decision.text += kAskedInVain;
  report_(named.decision, std::nullopt);
  switch (named.action) {
    case NameAction::kRefuse:
      return deny(*exchange, named.decision);
    case NameAction::kNoData:
      return exchange->send(dns::build_no_data(query));
    case NameAction::kPrivateReverse:
      return exchange->send(dns::build_private_reverse(query));
    case NameAction::kHostInternal:
      return exchange->send(dns::build_addresses(query, {{gates_.gateway(), kOwnTtl}}));
    case NameAction::kStandIn:
      return answer_stand_in(*exchange, *query.question.name.host);
    case NameAction::kForward:
      return forward(exchange);
  }
}

void NameService::deny(const Exchange& exchange, const Decision& decision) {
  const dns::Query& query = exchange.query;
  const dns::Name& name = query.question.name;
  const bool parent = name.is_root() || (name.host && gates_.policy().allows_below(*name.host));
  const auto build = parent ? dns::build_denied_parent : dns::build_denied;
  exchange.send(build(query, code_of(decision), explanation(decision)));
}

bool NameService::hold(const NameDecision& named, const std::shared_ptr<Exchange>& exchange) {
  const bool wanting = named.decision.reason == policy::Reason::kNoAllowRule;
  if (!hold_ || !wanting || named.decision.names.empty()) return false;
  return hold_(named.decision.names.front(), [this, alive = alive_, exchange] {
    if (*alive) judge(exchange, Asked::kAnswered);
  });
}

void NameService::answer_stand_in(const Exchange& exchange, const policy::HostName& name) {
  if (const auto address = gates_.stand_in(name, now_()))
    return exchange.send(dns::build_addresses(exchange.query, {{*address, kOwnTtl}}));
  Decision full;
  full.reason = policy::Reason::kFlowLimit;
  full.names = {name};
  full.text = "every address in the ledger is in use";
  report_(full, std::nullopt);
  exchange.send(dns::build_servfail(exchange.query, code_of(full), full.text));
}

void NameService::forward(const std::shared_ptr<Exchange>& exchange) {
  const dns::Query& query = exchange->query;
  upstream_(query.question, query.flags,
            [this, alive = alive_, exchange](const Result<Bytes>& raw) {
              if (*alive) upstream_answered(*exchange, raw);
            });
}

void NameService::upstream_answered(Exchange& exchange, const Result<Bytes>& raw) {
  const dns::Query& query = exchange.query;
  if (!raw)
    return exchange.send(
        dns::build_servfail(query, dns::Ede::kNoReachableAuthority, raw.error().message));
  const auto answer = dns::parse_answer(*raw, query.question);
  if (!answer)
    return exchange.send(
        dns::build_servfail(query, dns::Ede::kNetworkError, answer.error().message));
  const Resolved resolved = gates_.resolved(*query.question.name.host, host_names(answer->chain),
                                            answer->addresses, now_());
  for (const Resolved::Refused& refused : resolved.refused)
    report_(refused.decision, refused.address);
  if (!resolved.decision.allow) {
    if (resolved.refused.empty()) report_(resolved.decision, std::nullopt);
    return deny(exchange, resolved.decision);
  }
  exchange.send(dns::build_reply(query, *answer, resolved.vouched));
}

void NameService::renew(const std::vector<policy::HostName>& names, std::function<void()> done) {
  struct Renewal {
    size_t left = 0;
    std::function<void()> done;
  };
  std::vector<dns::Question> questions;
  for (const policy::HostName& name : names) {
    const dns::Question question{dns::Name::of(name), dns::Type::kA};
    const NameAction action = gates_.query(question).action;
    if (action == NameAction::kStandIn) (void)gates_.stand_in(name, now_());
    if (action == NameAction::kForward && questions.size() < kMaxRenewals)
      questions.push_back(question);
  }
  if (questions.empty()) return done();
  auto renewal = std::make_shared<Renewal>(Renewal{questions.size(), std::move(done)});
  for (const dns::Question& question : questions)
    upstream_(question, {}, [this, alive = alive_, question, renewal](const Result<Bytes>& raw) {
      if (!*alive) return;
      enter(question, raw);
      if (--renewal->left == 0) renewal->done();
    });
}

// What an answer to a question of our own vouches for.
void NameService::enter(const dns::Question& question, const Result<Bytes>& raw) {
  if (!raw) return;
  const auto answer = dns::parse_answer(*raw, question);
  if (!answer) return;
  const Resolved resolved =
      gates_.resolved(*question.name.host, host_names(answer->chain), answer->addresses, now_());
  for (const Resolved::Refused& refused : resolved.refused)
    report_(refused.decision, refused.address);
}

}  // namespace sandbox::gateway
