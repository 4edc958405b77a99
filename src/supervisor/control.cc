#include "supervisor/control.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

#include "base/socket.h"
#include "base/text.h"
#include "policy/host_pattern.h"

namespace sandbox {

namespace {

using nlohmann::json;

std::string who(const ControlServer::Client& client) {
  return fmt::format("by uid {}, pid {}", client->peer().uid, client->peer().pid);
}

void answer(const ControlServer::Client& to, const Status& status,
            const control::Reply& reply = {}) {
  to->send(status ? control::encode(reply) : control::encode(status.error()));
}

// Where a socket listens. An error says what is wrong with it: it comes from another process.
Result<control::Port> listening_at(const Fd& socket, uint16_t guest) {
  int type = 0;
  int listening = 0;
  socklen_t size = sizeof type;
  sockaddr_storage at{};
  socklen_t at_size = sizeof at;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at), &at_size) < 0)
    return fail_errno(errno, "the socket to publish");
  if (type != SOCK_STREAM || listening == 0 ||
      (at.ss_family != AF_INET && at.ss_family != AF_INET6))
    return fail(Code::kInvalid, "the socket to publish is no listening TCP socket");
  return control::Port{to_ip_address(at), port_of(at), guest};
}

// Rules of `more` that `rules` has not, in their one spelling, each once.
Result<std::vector<std::string>> new_rules(const std::vector<std::string>& rules,
                                           const std::vector<std::string>& more) {
  std::set<policy::HostPattern> known;
  for (const std::string& text : rules)
    if (const auto rule = policy::HostPattern::parse(text)) known.insert(*rule);
  std::vector<std::string> out;
  for (const std::string& text : more) {
    ASSIGN(const policy::HostPattern rule, policy::HostPattern::parse(text));
    if (known.insert(rule).second) out.push_back(rule.text());
  }
  return out;
}

// Whoever answers sees the text, and what he answers becomes the rule: one must name the other, and
// nothing wider than one host.
bool names_its_rule(const control::Asked& asked) {
  const auto rule = policy::HostPattern::parse(asked.rule);
  if (!rule || (rule->exact_name() == nullptr && !rule->exact_address())) return false;
  const auto words = split(asked.text, ' ');
  return std::ranges::any_of(words, [&](std::string_view word) {
    if (word.ends_with(',')) word.remove_suffix(1);
    return word == asked.rule;
  });
}

bool matches(const control::Unpublish& wanted, const control::Port& port) {
  return wanted.guest == port.guest && (wanted.port == 0 || wanted.port == port.port) &&
         (wanted.address.empty() || IpAddress::parse(wanted.address) == port.address);
}

}  // namespace

void Control::handle(const control::Request& request, std::vector<Fd> descriptors,
                     const Client& from) {
  if (std::holds_alternative<control::Ports>(request)) {
    control::Reply reply;
    for (const auto& [id, port] : published_) reply.ports.push_back(port);
    return answer(from, {}, reply);
  }
  if (const auto* wanted = std::get_if<control::Unpublish>(&request))
    return unpublish(*wanted, from);
  if (const auto* wanted = std::get_if<control::AddRules>(&request))
    return add_rules(*wanted, who(from), [from](const Result<std::vector<std::string>>& added) {
      if (!added) return answer(from, fail(added.error()));
      answer(from, {}, {.rules = *added});
    });
  if (std::holds_alternative<control::Questions>(request)) return tell_questions(from);
  if (const auto* wanted = std::get_if<control::Answer>(&request))
    return take_answer(*wanted, from);
  const auto& wanted = std::get<control::Publish>(request);
  if (descriptors.size() != 1)
    return answer(from, fail(Code::kInvalid, "publish comes with one listening socket"));
  publish(std::move(descriptors[0]), wanted.guest, [this, from](const Result<control::Port>& port) {
    if (!port) return answer(from, fail(port.error()));
    events_.note(fmt::format("published {}, {}", control::text(*port), who(from)));
    answer(from, {}, {.ports = {*port}});
  });
}

void Control::publish(Fd listener, uint16_t guest, Published done) {
  const auto at = listening_at(listener, guest);
  if (!at) return done(at);
  if (published_.size() >= kMaxPublished)
    return done(
        fail(Error{Code::kLimit, fmt::format("{} ports are published already", kMaxPublished),
                   "take one back with sandbox ports NAME --unpublish PORT"}));
  const uint64_t id = next_id_++;
  published_.emplace(id, *at);  // so that the limit counts what is on its way
  std::vector<Fd> descriptors;
  descriptors.push_back(std::move(listener));
  gateway_.ask(json{{"op", "publish"}, {"id", id}, {"port", guest}}.dump(), std::move(descriptors),
               [this, id, port = *at, done = std::move(done)](Status status) {
                 if (status) return done(port);
                 published_.erase(id);
                 done(fail(std::move(status).error()));
               });
}

void Control::unpublish(const control::Unpublish& wanted, const Client& from) {
  std::vector<uint64_t> ids;
  for (const auto& [id, port] : published_)
    if (matches(wanted, port)) ids.push_back(id);
  if (ids.empty())
    return answer(from, fail(Error{Code::kNotFound, "no such port is published",
                                   "sandbox ports NAME lists those that are"}));
  struct Outcome {
    control::Reply gone;
    Status status;  // the first failure
  };
  const auto outcome = std::make_shared<Outcome>();
  for (const uint64_t id : ids)
    gateway_.ask(json{{"op", "unpublish"}, {"id", id}}.dump(), {},
                 [this, outcome, from, id, last = id == ids.back()](Status status) {
                   const auto it = published_.find(id);
                   if (status && it != published_.end()) {
                     events_.note(fmt::format("no longer published: {}, {}",
                                              control::text(it->second), who(from)));
                     outcome->gone.ports.push_back(it->second);
                     published_.erase(it);
                   }
                   if (!status && outcome->status) outcome->status = std::move(status);
                   if (last) answer(from, outcome->status, outcome->gone);
                 });
}

// ---- rules ----

void Control::add_rules(control::AddRules rules, std::string who, Changed done) {
  changes_.push_back({std::move(rules), std::move(who), std::move(done)});
  if (!changing_) next_change();
}

// One at a time: each begins with what the one before it has left in force.
void Control::next_change() {
  while (!changing_ && !changes_.empty()) {
    changing_ = true;
    apply(changes_.front());
  }
}

void Control::apply(const Change& change) {
  const auto finish = [this](const Result<std::vector<std::string>>& outcome) {
    const Changed done = std::move(changes_.front().done);
    changes_.pop_front();
    changing_ = false;
    done(outcome);
  };
  Rules merged = rules_;
  auto allow = new_rules(rules_.allow, change.rules.allow);
  if (!allow) return finish(fail(allow.error()));
  auto deny = new_rules(rules_.deny, change.rules.deny);
  if (!deny) return finish(fail(deny.error()));
  if (allow->empty() && deny->empty()) return finish({});
  merged.allow.insert(merged.allow.end(), allow->begin(), allow->end());
  merged.deny.insert(merged.deny.end(), deny->begin(), deny->end());
  std::string message =
      json{{"op", "policy"}, {"allow", merged.allow}, {"deny", merged.deny}}.dump();
  if (message.size() > kMaxRuleBytes)
    return finish(
        fail(Error{Code::kLimit,
                   fmt::format("the rules of a running sandbox may have {} KiB in all, and "
                               "these would have more",
                               kMaxRuleBytes / 1024),
                   "one rule for a zone, '*.example.org', may stand for many"}));
  std::string what;
  for (const std::string& rule : *allow) what += fmt::format(" allow {}", rule);
  for (const std::string& rule : *deny) what += fmt::format(" deny {}", rule);
  std::vector<std::string> added = std::move(*allow);
  added.insert(added.end(), deny->begin(), deny->end());
  gateway_.ask(std::move(message), {},
               [this, finish, merged = std::move(merged), added = std::move(added),
                text = fmt::format("policy changed:{}, {}", what, change.who)](Status status) {
                 if (status) {
                   rules_ = merged;
                   events_.note(text);
                   status = events_.rules_changed(rules_);
                   if (!status)
                     status = fail(std::move(status).error().while_doing(
                         "the rules are in force, but not on record"));
                 }
                 if (status)
                   finish(added);
                 else
                   finish(fail(std::move(status).error()));
                 next_change();
               });
}

// ---- questions ----

// From a process that reads hostile frames: checked here once more, and escaped by who shows it.
void Control::asked_or_over(const control::Event& event) {
  if (const auto* asked = std::get_if<control::Asked>(&event)) {
    if (questions_.size() >= kMaxQuestions || asked->text.size() > kMaxQuestionText ||
        asked->rule.size() > kMaxQuestionText || !names_its_rule(*asked))
      return tell_gateway(asked->id, false, [](const Status&) {});
    questions_[asked->id] = *asked;
  } else {
    questions_.erase(std::get<control::Over>(event).id);
  }
  for (const Client& client : told_) client->send(control::encode(event));
}

void Control::tell_questions(const Client& client) {
  if (std::ranges::find(told_, client) != told_.end())
    return answer(client, fail(Code::kExists, "this connection is told already"));
  if (told_.empty())
    gateway_.ask(json{{"op", "ask"}, {"on", true}}.dump(), {}, [](const Status&) {});
  told_.push_back(client);
  client->on_close([this, weak = std::weak_ptr(client)] {
    if (const Client held = weak.lock()) client_left(held);
  });
  answer(client, {});
  for (const auto& [id, question] : questions_) client->send(control::encode(question));
}

// With nobody left to ask, what waits is denied at once.
void Control::client_left(const Client& client) {
  std::erase(told_, client);
  if (told_.empty())
    gateway_.ask(json{{"op", "ask"}, {"on", false}}.dump(), {}, [](const Status&) {});
}

void Control::tell_gateway(uint64_t id, bool allow, GatewayLink::Done done) {
  gateway_.ask(json{{"op", "answer"}, {"id", id}, {"allow", allow}}.dump(), {}, std::move(done));
}

void Control::take_answer(const control::Answer& wanted, const Client& from) {
  const auto it = questions_.find(wanted.id);
  if (it == questions_.end())
    return answer(from, fail(Code::kNotFound, "question {} is over", wanted.id));
  const std::string rule = it->second.rule;
  // The gateway lets go what the new rule is about.
  if (wanted.choice == control::Choice::kSession)
    return add_rules({{rule}, {}}, "asked, " + who(from),
                     [from](const Result<std::vector<std::string>>& added) {
                       answer(from, added ? Status{} : Status(fail(added.error())));
                     });
  const bool once = wanted.choice == control::Choice::kOnce;
  tell_gateway(wanted.id, once, [this, from, rule, once](const Status& status) {
    if (status)
      events_.note(
          fmt::format("asked: {} {}, {}", rule, once ? "allowed once" : "denied", who(from)));
    answer(from, status);
  });
}

}  // namespace sandbox
