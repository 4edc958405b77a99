// What the scenarios of vectors_test.cc do not reach: texts, hints, actions, and the flow that a
// dial gives.

#include "gateway/gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::gateway {
namespace {

using policy::HostName;
using policy::Protocol;
using policy::Reason;

constexpr Instant kNow{std::chrono::hours(1)};

HostName host(const std::string& text) {
  return *HostName::parse(text);
}
IpAddress ip(const std::string& text) {
  return *IpAddress::parse(text);
}

Gates gates(std::vector<std::string> allow, std::vector<std::string> deny = {},
            std::vector<IpAddress> host_addresses = {}) {
  return {*policy::Policy::create(allow, deny),
          {std::move(host_addresses), *Ipv4::parse("192.0.0.1")}};
}

void resolve(Gates& gates, const std::string& name, std::vector<std::string> addresses) {
  std::vector<dns::AddressRecord> answers;
  for (const std::string& each : addresses) answers.push_back({*Ipv4::parse(each), 60});
  ASSERT_TRUE(gates.resolved(host(name), {}, answers, kNow).decision.allow);
}

NameAction action(const Gates& gates, const std::string& name, dns::Type type = dns::Type::kA) {
  return gates.query({dns::Name::of(host(name)), type}).action;
}

http::Request request(std::string_view head) {
  http::RequestReader reader;
  EXPECT_EQ(reader.feed(as_bytes(head)).event, http::RequestReader::Event::kRequest)
      << reader.reason();
  return reader.request();
}

TEST(Gates, say_what_a_query_needs) {
  const Gates some = gates({"a.example.org", "host.internal:80"});
  EXPECT_EQ(action(some, "a.example.org"), NameAction::kForward);
  EXPECT_EQ(action(some, "a.example.org", dns::Type::kHttps), NameAction::kForward);
  EXPECT_EQ(action(some, "a.example.org", dns::Type::kAaaa), NameAction::kNoData);
  EXPECT_EQ(action(some, "b.example.org", dns::Type::kAaaa), NameAction::kRefuse);
  EXPECT_EQ(action(some, "host.internal"), NameAction::kHostInternal);
  EXPECT_EQ(action(some, "host.internal", dns::Type::kTxt), NameAction::kNoData);
  EXPECT_EQ(action(some, "1.0.0.10.in-addr.arpa", dns::Type::kPtr), NameAction::kPrivateReverse);
  EXPECT_EQ(action(some, "8.8.8.8.in-addr.arpa", dns::Type::kPtr), NameAction::kRefuse);
  EXPECT_EQ(action(gates({}), "host.internal"), NameAction::kRefuse);
}

TEST(Gates, refuse_a_query_for_what_is_no_host_name) {
  dns::Question question;
  question.name.wire = {3, 'a', 0, 'b', 0};
  const NameDecision named = gates({"*.example.org"}).query(question);
  EXPECT_EQ(named.action, NameAction::kRefuse);
  EXPECT_EQ(named.decision.subject, "a\\000b");
}

TEST(Gates, name_the_flag_that_would_allow) {
  Gates some = gates({"a.example.org:443"});
  resolve(some, "a.example.org", {"93.184.215.14"});
  EXPECT_EQ(some.query({dns::Name::of(host("b.example.org")), dns::Type::kA}).decision.hint,
            "--allow b.example.org");
  EXPECT_EQ(some.dial(Protocol::kTcp, ip("93.184.215.14"), 80, kNow).decision.hint,
            "--allow a.example.org:80");
  EXPECT_EQ(some.dial(Protocol::kUdp, ip("93.184.215.14"), 123, kNow).decision.hint,
            "--allow udp/a.example.org:123");
  EXPECT_EQ(some.dial(Protocol::kIcmp, ip("93.184.215.14"), 0, kNow).decision.hint,
            "--allow icmp/a.example.org");
  EXPECT_EQ(some.dial(Protocol::kTcp, ip("9.9.9.9"), 22, kNow).decision.hint, "--allow 9.9.9.9:22");
}

TEST(Gates, every_flag_they_name_is_a_rule_that_parses) {
  Gates some = gates({"a.example.org:443"});
  resolve(some, "a.example.org", {"93.184.215.14"});
  for (const Protocol protocol : {Protocol::kTcp, Protocol::kUdp, Protocol::kIcmp})
    for (const char* address : {"93.184.215.14", "9.9.9.9"}) {
      const uint16_t port = protocol == Protocol::kIcmp ? 0 : 99;
      const std::string hint = some.dial(protocol, ip(address), port, kNow).decision.hint;
      ASSERT_TRUE(hint.starts_with("--allow ")) << hint;
      EXPECT_TRUE(policy::HostPattern::parse(hint.substr(8))) << hint;
    }
}

TEST(Gates, name_no_flag_where_a_rule_denied_or_none_would_help) {
  Gates some = gates({"*.example.org"}, {"b.example.org"}, {ip("192.168.1.5")});
  EXPECT_EQ(some.query({dns::Name::of(host("b.example.org")), dns::Type::kA}).decision.hint, "");
  for (const char* address : {"127.0.0.1", "169.254.169.254", "192.168.1.5", "192.0.0.1"}) {
    const std::vector<dns::AddressRecord> answers = {{*Ipv4::parse(address), 60}};
    const Resolved resolved = some.resolved(host("a.example.org"), {}, answers, kNow);
    EXPECT_EQ(resolved.decision.reason, Reason::kRebinding) << address;
    EXPECT_EQ(resolved.decision.hint, "") << address;
  }
  const std::vector<dns::AddressRecord> answers = {{*Ipv4::parse("10.1.2.3"), 60}};
  EXPECT_EQ(some.resolved(host("a.example.org"), {}, answers, kNow).decision.hint,
            "--allow a.example.org@10.1.2.3");
}

TEST(Gates, know_whether_a_client_has_another_address_to_try) {
  Gates some = gates({"*.example.org"});
  resolve(some, "a.example.org", {"93.184.215.14"});
  EXPECT_FALSE(some.dial(Protocol::kTcp, ip("93.184.215.14"), 443, kNow).has_alternatives);
  resolve(some, "b.example.org", {"93.184.215.14", "93.184.215.15"});
  EXPECT_TRUE(some.dial(Protocol::kTcp, ip("93.184.215.14"), 443, kNow).has_alternatives);
}

TEST(Gates, answer_empty_answers_with_success) {
  Gates some = gates({"a.example.org"});
  const Resolved resolved = some.resolved(host("a.example.org"), {}, {}, kNow);
  EXPECT_TRUE(resolved.decision.allow && resolved.vouched.empty());
}

TEST(Gates, judge_http_1_0_without_host_by_the_address) {
  Gates some = gates({"a.example.org", "198.51.100.7"});
  resolve(some, "a.example.org", {"93.184.215.14"});
  auto named = some.dial(Protocol::kTcp, ip("93.184.215.14"), 80, kNow);
  EXPECT_EQ(some.request(named.flow, request("GET / HTTP/1.0\r\n\r\n"), kNow).reason,
            Reason::kHostDenied);
  auto literal = some.dial(Protocol::kTcp, ip("198.51.100.7"), 80, kNow);
  EXPECT_TRUE(some.request(literal.flow, request("GET / HTTP/1.0\r\n\r\n"), kNow).allow);
}

TEST(Gates, lead_host_internal_to_loopback_whatever_is_spoken) {
  Gates some = gates({"host.internal:443"});
  auto dialled = some.dial(Protocol::kTcp, ip("192.0.0.1"), 443, kNow);
  ASSERT_TRUE(dialled.decision.allow);
  EXPECT_EQ(dialled.connect_to, ip("127.0.0.1"));
  EXPECT_TRUE(some.opaque(dialled.flow).allow);
  EXPECT_TRUE(some.hello(dialled.flow, {}, kNow).allow);
  tls::Hello other;
  other.server_name = host("evil.net");
  EXPECT_EQ(some.hello(dialled.flow, other, kNow).reason, Reason::kSniDenied);
  some.replace_policy(policy::Policy());
  EXPECT_FALSE(some.rejudge(dialled.flow, kNow).allow);
}

TEST(Gates, hold_a_flow_to_the_name_it_showed_when_the_policy_changes) {
  Gates some = gates({"*.example.org"});
  resolve(some, "a.example.org", {"93.184.215.14"});
  resolve(some, "b.example.org", {"93.184.215.14"});
  auto dialled = some.dial(Protocol::kTcp, ip("93.184.215.14"), 443, kNow);
  tls::Hello hello;
  hello.server_name = host("b.example.org");
  ASSERT_TRUE(some.hello(dialled.flow, hello, kNow).allow);
  const std::vector<std::string> only_a = {"a.example.org"};
  some.replace_policy(*policy::Policy::create(only_a, {}));
  const Decision again = some.rejudge(dialled.flow, kNow);
  EXPECT_FALSE(again.allow);
  EXPECT_EQ(again.subject, "b.example.org");
}

TEST(Gates, refuse_a_request_that_names_another_address) {
  Gates some = gates({"198.51.100.0/24"});
  auto dialled = some.dial(Protocol::kTcp, ip("198.51.100.7"), 80, kNow);
  ASSERT_TRUE(dialled.decision.allow);
  EXPECT_TRUE(
      some.request(dialled.flow, request("GET / HTTP/1.1\r\nHost: 198.51.100.7\r\n\r\n"), kNow)
          .allow);
  EXPECT_FALSE(
      some.request(dialled.flow, request("GET / HTTP/1.1\r\nHost: 198.51.100.8\r\n\r\n"), kNow)
          .allow);
}

TEST(Gates, escape_what_a_guest_wrote_before_people_see_it) {
  dns::Question question;
  question.name.wire = {4, 0x1B, '[', '3', '1', 0};
  const Decision decision = gates({}).query(question).decision;
  EXPECT_EQ(decision.text.find('\x1B'), std::string::npos);
}

}  // namespace
}  // namespace sandbox::gateway
