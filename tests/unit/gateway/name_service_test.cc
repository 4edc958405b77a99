#include "gateway/name_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::gateway {
namespace {

using policy::HostName;
using policy::Reason;

HostName host(const std::string& text) {
  return *HostName::parse(text);
}

// Stands for the resolver: keeps the questions, answers when told.
class NameServiceTest : public testing::Test {
 protected:
  struct Asked {
    dns::Question question;
    Resolver::Callback callback;
  };

  void rules(std::vector<std::string> allow, std::vector<std::string> deny = {}) {
    gates_.emplace(*policy::Policy::create(allow, deny),
                   Gates::Config{{}, *Ipv4::parse("192.0.0.1")});
    service_ = std::make_unique<NameService>(
        *gates_,
        [this](const dns::Question& question, const dns::Flags&, Resolver::Callback callback) {
          asked_.push_back({question, std::move(callback)});
        },
        [] { return Instant{std::chrono::hours(1)}; },
        [this](const Decision& decision, std::optional<Ipv4> address) {
          reports_.push_back(std::string(policy::text(decision.reason)) +
                             (address ? " " + address->text() : ""));
        });
  }

  void ask(const std::string& name, dns::Type type = dns::Type::kA) {
    question_ = {dns::Name::of(host(name)), type};
    service_->answer(dns::build_query(7, question_, {}), NameService::Transport::kUdp,
                     [this](Bytes reply) { replies_.push_back(std::move(reply)); });
  }

  // The upstream's answer: an alias (may be empty), then addresses.
  void upstream(const std::string& alias, const std::vector<std::string>& addresses) {
    Asked asked = std::move(asked_.at(0));
    asked_.erase(asked_.begin());
    dns::Query query;
    query.question = asked.question;
    ByteWriter out;
    const auto records = static_cast<uint16_t>(addresses.size() + (alias.empty() ? 0 : 1));
    for (const uint16_t number :
         {uint16_t{7}, uint16_t{0x8180}, uint16_t{1}, records, uint16_t{0}, uint16_t{0}})
      out.be16(number);
    out.bytes(asked.question.name.wire);
    out.be16(static_cast<uint16_t>(asked.question.type));
    out.be16(1);
    dns::Name owner = asked.question.name;
    const auto record = [&](uint16_t type, ByteView rdata) {
      out.bytes(owner.wire);
      out.be16(type);
      out.be16(1);
      out.be32(60);
      out.be16(static_cast<uint16_t>(rdata.size()));
      out.bytes(rdata);
    };
    if (!alias.empty()) {
      record(5, dns::Name::of(host(alias)).wire);
      owner = dns::Name::of(host(alias));
    }
    for (const std::string& address : addresses) {
      ByteWriter rdata;
      rdata.be32(Ipv4::parse(address)->value);
      record(1, rdata.view());
    }
    asked.callback(out.take());
  }

  // "0 1.2.3.4": code and addresses of the last reply.
  std::string reply() {
    if (replies_.empty()) return "none";
    const auto answer = dns::parse_answer(replies_.back(), question_);
    if (!answer) return answer.error().message;
    std::string out = std::to_string(static_cast<int>(answer->rcode));
    for (const auto& each : answer->addresses) out += " " + each.address.text();
    return out;
  }
  bool reply_says(const std::string& text) {
    return std::string(as_text(replies_.back())).find(text) != std::string::npos;
  }

  std::optional<Gates> gates_;
  std::unique_ptr<NameService> service_;
  std::vector<Asked> asked_;
  std::vector<Bytes> replies_;
  std::vector<std::string> reports_;
  dns::Question question_;
};

TEST_F(NameServiceTest, forwards_an_allowed_name_and_vouches_for_the_answer) {
  rules({"a.example.org"});
  ask("a.example.org");
  EXPECT_TRUE(replies_.empty());
  upstream("", {"93.184.215.14"});
  EXPECT_EQ(reply(), "0 93.184.215.14");
  EXPECT_THAT(reports_, testing::ElementsAre("allow-rule"));
  EXPECT_EQ(gates_->ledger().addresses(), 1U);
}

TEST_F(NameServiceTest, asks_nobody_about_a_denied_name_of_any_type) {
  rules({"a.example.org"}, {"b.example.org"});
  for (const dns::Type type : {dns::Type::kA, dns::Type::kAaaa, dns::Type::kTxt, dns::Type::kHttps,
                               dns::Type::kAny, static_cast<dns::Type>(65280)}) {
    ask("evil.net", type);
    EXPECT_EQ(reply(), "3");
    EXPECT_TRUE(reply_says("no-allow-rule") && reply_says("--allow evil.net"));
    ask("b.example.org", type);
    EXPECT_EQ(reply(), "3");
  }
  EXPECT_TRUE(asked_.empty());
}

TEST_F(NameServiceTest, says_of_no_parent_of_an_allowed_name_that_it_is_not_there) {
  rules({"a.b.example.org", "*.example.net", "198.51.100.7"});
  for (const char* parent : {"b.example.org", "example.org", "org", "net"}) {
    ask(parent);
    EXPECT_EQ(reply(), "0") << parent;
    EXPECT_TRUE(reply_says("no-allow-rule")) << parent;
  }
  for (const char* other : {"c.example.org", "x.a.b.example.org", "com"}) {
    ask(other);
    EXPECT_EQ(reply(), "3") << other;
  }
  question_.name.wire = {0};
  question_.name.host.reset();
  service_->answer(dns::build_query(7, question_, {}), NameService::Transport::kUdp,
                   [this](Bytes reply) { replies_.push_back(std::move(reply)); });
  EXPECT_EQ(reply(), "0");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(NameServiceTest, answers_itself_what_it_can) {
  rules({"a.example.org", "host.internal:8080"});
  ask("a.example.org", dns::Type::kAaaa);
  EXPECT_EQ(reply(), "0");
  ask("host.internal");
  EXPECT_EQ(reply(), "0 192.0.0.1");
  ask("host.internal", dns::Type::kAaaa);
  EXPECT_EQ(reply(), "0");
  ask("1.0.0.10.in-addr.arpa", dns::Type::kPtr);
  EXPECT_EQ(reply(), "3");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(NameServiceTest, leaves_the_refused_address_out_of_a_mixed_answer) {
  rules({"a.example.org"});
  ask("a.example.org");
  upstream("", {"10.0.0.1", "93.184.215.14", "127.0.0.1"});
  EXPECT_EQ(reply(), "0 93.184.215.14");
  EXPECT_THAT(reports_,
              testing::ElementsAre("allow-rule", "rebinding 10.0.0.1", "rebinding 127.0.0.1"));
}

TEST_F(NameServiceTest, refuses_an_answer_of_private_addresses_and_says_how_to_allow_it) {
  rules({"a.example.org"});
  ask("a.example.org");
  upstream("", {"10.0.0.1"});
  EXPECT_EQ(reply(), "3");
  EXPECT_TRUE(reply_says("a.example.org@10.0.0.1"));
  rules({"a.example.org@10.0.0.0/8"});
  ask("a.example.org");
  upstream("", {"10.0.0.1"});
  EXPECT_EQ(reply(), "0 10.0.0.1");
}

TEST_F(NameServiceTest, refuses_an_answer_through_a_denied_alias) {
  rules({"a.example.org"}, {"*.ads.net"});
  ask("a.example.org");
  upstream("x.ads.net", {"93.184.215.14"});
  EXPECT_EQ(reply(), "3");
  EXPECT_THAT(reports_, testing::ElementsAre("allow-rule", "deny-rule"));
  EXPECT_EQ(gates_->ledger().addresses(), 0U);
}

TEST_F(NameServiceTest, holds_an_answer_against_the_policy_as_it_is_by_then) {
  rules({"a.example.org"});
  ask("a.example.org");
  gates_->replace_policy(policy::Policy());
  upstream("", {"93.184.215.14"});
  EXPECT_EQ(reply(), "3");
}

TEST_F(NameServiceTest, turns_failures_and_nonsense_into_servfail) {
  rules({"a.example.org"});
  ask("a.example.org");
  asked_.at(0).callback(fail(Code::kUnavailable, "no resolver answered"));
  EXPECT_EQ(reply(), "2");
  asked_.clear();
  ask("a.example.org");
  asked_.at(0).callback(Bytes{1, 2, 3});
  EXPECT_EQ(reply(), "2");
}

TEST_F(NameServiceTest, is_silent_to_garbage_and_answers_malformed_queries) {
  rules({"a.example.org"});
  int replies = 0;
  const auto count = [&](const Bytes&) { ++replies; };
  service_->answer(Bytes{1, 2, 3}, NameService::Transport::kUdp, count);
  EXPECT_EQ(replies, 0);
  service_->answer(Bytes{0, 1, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0}, NameService::Transport::kUdp, count);
  EXPECT_EQ(replies, 1);
}

TEST_F(NameServiceTest, truncates_over_udp_and_not_over_tcp) {
  rules({"a.example.org"});
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back("93.184.215." + std::to_string(i));
  ask("a.example.org");
  upstream("", many);
  EXPECT_EQ(reply(), "0");
  EXPECT_EQ(replies_.back()[2] & 2, 2);
  service_->answer(dns::build_query(7, question_, {}), NameService::Transport::kTcp,
                   [this](Bytes whole) { replies_.push_back(std::move(whole)); });
  upstream("", many);
  EXPECT_THAT(reply(), testing::HasSubstr("93.184.215.99"));
}

TEST_F(NameServiceTest, renews_each_name_and_says_when_all_are_done) {
  rules({"a.example.org", "b.example.org"});
  int done = 0;
  service_->renew({host("a.example.org"), host("b.example.org"), host("evil.net")},
                  [&] { ++done; });
  ASSERT_EQ(asked_.size(), 2U);
  upstream("", {"93.184.215.14"});
  EXPECT_EQ(done, 0);
  asked_.at(0).callback(fail(Code::kUnavailable, "x"));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(gates_->ledger().addresses(), 1U);
  service_->renew({host("evil.net")}, [&] { ++done; });
  EXPECT_EQ(done, 2);
}

TEST_F(NameServiceTest, ignores_answers_after_its_end) {
  rules({"a.example.org"});
  ask("a.example.org");
  service_.reset();
  asked_.at(0).callback(fail(Code::kCancelled, "x"));
  EXPECT_TRUE(replies_.empty());
}

// Stands for the person who is asked.
struct Person {
  std::vector<std::string> asked;
  std::vector<std::function<void()>> waiting;
  NameService::Hold hold(bool listens = true) {
    return [this, listens](const HostName& name, std::function<void()> resume) {
      if (!listens) return false;
      asked.push_back(name.text());
      waiting.push_back(std::move(resume));
      return true;
    };
  }
};

TEST_F(NameServiceTest, holds_what_no_rule_is_about_and_answers_others_meanwhile) {
  rules({"a.example.org"}, {"ads.net"});
  Person person;
  service_->set_hold(person.hold());
  ask("b.example.org");
  ask("ads.net");
  EXPECT_EQ(reply(), "3") << "a deny rule is nothing to ask about";
  ask("a.example.org");
  upstream("", {"93.184.215.14"});
  EXPECT_EQ(reply(), "0 93.184.215.14");
  EXPECT_THAT(person.asked, testing::ElementsAre("b.example.org"));
  EXPECT_EQ(replies_.size(), 2U);

  gates_->grant(*policy::HostPattern::parse("b.example.org"), Instant{std::chrono::hours(1)});
  person.waiting.at(0)();
  upstream("", {"93.184.215.15"});
  question_ = {dns::Name::of(host("b.example.org")), dns::Type::kA};
  EXPECT_EQ(reply(), "0 93.184.215.15");
}

TEST_F(NameServiceTest, what_was_asked_about_in_vain_is_refused_once_and_says_so) {
  rules({});
  Person person;
  service_->set_hold(person.hold());
  ask("b.example.org");
  EXPECT_TRUE(reports_.empty());
  person.waiting.at(0)();
  EXPECT_EQ(reply(), "3");
  EXPECT_TRUE(reply_says("it was asked about, and not allowed"));
  EXPECT_THAT(person.asked, testing::ElementsAre("b.example.org"));
  EXPECT_THAT(reports_, testing::ElementsAre("no-allow-rule"));
}

TEST_F(NameServiceTest, refuses_at_once_where_nobody_can_be_asked) {
  rules({});
  Person person;
  service_->set_hold(person.hold(false));
  ask("b.example.org");
  EXPECT_EQ(reply(), "3");
  EXPECT_FALSE(reply_says("asked about"));
}

TEST_F(NameServiceTest, an_answer_after_its_end_reaches_nobody) {
  rules({});
  Person person;
  service_->set_hold(person.hold());
  ask("b.example.org");
  service_.reset();
  person.waiting.at(0)();
  EXPECT_TRUE(replies_.empty());
}

}  // namespace
}  // namespace sandbox::gateway
