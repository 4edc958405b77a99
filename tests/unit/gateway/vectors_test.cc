// Runs every scenario of tests/data/policy-vectors.json against the gates with a virtual clock. The
// schema is in tests/data/README.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "gateway/gates.h"

namespace sandbox::gateway {
namespace {

using nlohmann::json;
using policy::HostName;

HostName host(const std::string& text) {
  auto name = HostName::parse(text);
  if (!name) throw std::runtime_error(text + ": " + name.error().message);
  return *name;
}

IpAddress ip(const std::string& text) {
  const auto address = IpAddress::parse(text);
  if (!address) throw std::runtime_error("no address: " + text);
  return *address;
}

policy::Policy rules(const json& object) {
  const auto allow = object.value("allow", std::vector<std::string>{});
  const auto deny = object.value("deny", std::vector<std::string>{});
  auto made = policy::Policy::create(allow, deny);
  if (!made) throw std::runtime_error(made.error().message);
  return *made;
}

dns::Type type_of(const std::string& text) {
  const std::map<std::string, dns::Type> kTypes = {
      {"A", dns::Type::kA},   {"AAAA", dns::Type::kAaaa},   {"TXT", dns::Type::kTxt},
      {"MX", dns::Type::kMx}, {"HTTPS", dns::Type::kHttps}, {"ANY", dns::Type::kAny}};
  return kTypes.at(text);
}

class Scenario {
 public:
  explicit Scenario(const json& object) : gates_(rules(object), config(object)) {}

  void run(const json& step) {
    using Verb = void (Scenario::*)(const json&);
    static const std::map<std::string, Verb> kVerbs = {{"query", &Scenario::query},
                                                       {"resolve", &Scenario::resolve},
                                                       {"dial", &Scenario::dial},
                                                       {"hello", &Scenario::hello},
                                                       {"unreadable", &Scenario::unreadable},
                                                       {"request", &Scenario::request},
                                                       {"opaque", &Scenario::opaque},
                                                       {"rejudge", &Scenario::rejudge},
                                                       {"close", &Scenario::close},
                                                       {"advance", &Scenario::advance},
                                                       {"fill", &Scenario::fill},
                                                       {"policy", &Scenario::replace}};
    static const std::set<std::string> kArguments = {"type", "answers", "chain", "flow",  "attempt",
                                                     "name", "first",   "ttl",   "expect"};
    Verb verb = nullptr;
    for (const auto& [key, value] : step.items()) {
      if (const auto it = kVerbs.find(key); it != kVerbs.end()) verb = it->second;
      if (!kVerbs.contains(key) && !kArguments.contains(key))
        throw std::runtime_error("unknown key " + key);
    }
    if (verb == nullptr) throw std::runtime_error("a step without a verb");
    expect_ = step.value("expect", json::object());
    seen_.clear();
    (this->*verb)(step);
    for (const auto& [key, value] : expect_.items())
      if (!seen_.contains(key)) throw std::runtime_error("nothing compares " + key);
  }

 private:
  static Gates::Config config(const json& object) {
    Gates::Config config;
    for (const auto& address : object.value("host", std::vector<std::string>{}))
      config.host_addresses.push_back(ip(address));
    config.gateway = *Ipv4::parse("192.0.0.1");
    return config;
  }

  void compare(const std::string& key, const json& actual) {
    seen_.insert(key);
    if (expect_.contains(key)) {
      EXPECT_EQ(expect_[key], actual) << key;
    }
  }

  void compare(const Decision& decision, const std::string& all_text) {
    compare("allow", decision.allow);
    compare("reason", std::string(policy::text(decision.reason)));
    compare("rule", decision.rule);
    seen_.insert("names");
    if (expect_.contains("names")) {
      std::set<std::string> names;
      for (const HostName& name : decision.names) names.insert(name.text());
      EXPECT_EQ(expect_["names"].get<std::set<std::string>>(), names);
    }
    seen_.insert("text");
    if (expect_.contains("text")) {
      EXPECT_THAT(all_text, testing::HasSubstr(expect_["text"].get<std::string>()));
    }
  }
  void compare(const Decision& decision) { compare(decision, decision.text); }

  void query(const json& step) {
    dns::Question question{dns::Name::of(host(step["query"])), type_of(step.value("type", "A"))};
    compare(gates_.query(question).decision);
  }

  Resolved resolve(const std::string& name, const std::vector<std::string>& chain,
                   const std::vector<dns::AddressRecord>& answers) {
    std::vector<HostName> aliases;
    for (const auto& alias : chain) aliases.push_back(host(alias));
    return gates_.resolved(host(name), aliases, answers, now_);
  }

  void resolve(const json& step) {
    std::vector<dns::AddressRecord> answers;
    const auto given = step["answers"].get<std::map<std::string, uint32_t>>();
    for (const auto& [address, ttl] : given) answers.push_back({ip(address).v4(), ttl});
    const Resolved resolved =
        resolve(step["resolve"], step.value("chain", std::vector<std::string>{}), answers);
    std::string text = resolved.decision.text;
    std::set<std::string> vouched;
    for (const Ipv4& address : resolved.vouched) vouched.insert(address.text());
    json refused = json::object();
    for (const Resolved::Refused& each : resolved.refused) {
      refused[each.address.text()] = policy::text(each.decision.reason);
      text += "\n" + each.decision.text;
    }
    compare(resolved.decision, text);
    seen_.insert("vouched");
    if (expect_.contains("vouched")) {
      EXPECT_EQ(expect_["vouched"].get<std::set<std::string>>(), vouched);
    }
    compare("refused", refused);
  }

  void dial(const json& step) {
    const std::string text = step["dial"];
    const size_t space = text.find(' ');
    const std::string proto = text.substr(0, space);
    const std::string target = text.substr(space + 1);
    const auto protocol = proto == "udp"    ? policy::Protocol::kUdp
                          : proto == "icmp" ? policy::Protocol::kIcmp
                                            : policy::Protocol::kTcp;
    const auto authority = http::Authority::parse(target);
    if (!authority || authority->address() == nullptr) throw std::runtime_error("dial " + target);
    const auto attempt =
        step.value("attempt", "first") == "renewed" ? Attempt::kRenewed : Attempt::kFirst;
    DialDecision dialled =
        gates_.dial(protocol, *authority->address(), authority->port().value_or(0), now_, attempt);
    compare(dialled.decision);
    std::vector<std::string> renew;
    for (const HostName& name : dialled.renew) renew.push_back(name.text());
    compare("renew", renew);
    compare("connect_to", dialled.connect_to.text());
    compare("server_first", dialled.flow.server_first);
    compare("proxy", dialled.flow.proxy);
    const std::string label = step.value("flow", "flow");
    flows_.erase(label);
    if (dialled.decision.allow) flows_.emplace(label, std::move(dialled.flow));
  }

  Flow& flow(const std::string& label) {
    const auto it = flows_.find(label);
    if (it == flows_.end()) throw std::runtime_error("no open flow " + label);
    return it->second;
  }
  Flow& flow_of(const json& step) { return flow(step.value("flow", "flow")); }

  void hello(const json& step) {
    tls::Hello hello;
    if (step["hello"].contains("sni")) hello.server_name = host(step["hello"]["sni"]);
    hello.ech = step["hello"].value("ech", false);
    compare(gates_.hello(flow_of(step), hello, now_));
  }

  void unreadable(const json& step) {
    compare(gates_.unreadable(flow_of(step), step["unreadable"].get<std::string>()));
  }

  void request(const json& step) {
    const std::string bytes = step["request"];
    http::RequestReader reader;
    const auto read = reader.feed(as_bytes(bytes));
    if (read.event != http::RequestReader::Event::kRequest)
      throw std::runtime_error("no request head: " + reader.reason());
    compare(gates_.request(flow_of(step), reader.request(), now_));
  }

  void opaque(const json& step) { compare(gates_.opaque(flow(step["opaque"]))); }
  void rejudge(const json& step) { compare(gates_.rejudge(flow(step["rejudge"]), now_)); }
  void close(const json& step) {
    if (flows_.erase(step["close"]) == 0) throw std::runtime_error("no open flow to close");
  }
  void advance(const json& step) { now_ = now_ + std::chrono::seconds(step["advance"].get<int>()); }
  void replace(const json& step) { gates_.replace_policy(rules(step["policy"])); }

  void fill(const json& step) {
    const uint32_t first = ip(step["first"]).v4().value;
    const auto count = step["fill"].get<uint32_t>();
    for (uint32_t i = 0; i < count; ++i)
      (void)resolve(step["name"], {}, {{Ipv4{first + i}, step.value("ttl", 60U)}});
  }

  Gates gates_;
  Instant now_{std::chrono::hours(1)};
  std::map<std::string, Flow> flows_;
  json expect_;
  std::set<std::string> seen_;
};

std::vector<json> scenarios() {
  std::ifstream file(SANDBOX_TEST_DATA "/policy-vectors.json");
  return json::parse(file).get<std::vector<json>>();
}

class PolicyVectors : public testing::TestWithParam<size_t> {};

TEST_P(PolicyVectors, hold) {
  const json scenario = scenarios().at(GetParam());
  SCOPED_TRACE(scenario["name"].get<std::string>());
  Scenario run(scenario);
  for (const json& step : scenario["steps"]) {
    SCOPED_TRACE(step.dump());
    ASSERT_NO_THROW(run.run(step));
    if (HasFailure()) return;
  }
}

std::string test_name(const testing::TestParamInfo<size_t>& info) {
  std::string name = scenarios().at(info.param)["name"];
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, PolicyVectors, testing::Range(size_t{0}, scenarios().size()),
                         test_name);

}  // namespace
}  // namespace sandbox::gateway
