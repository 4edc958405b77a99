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

tls::Hello hello_for(const std::string& name) {
  tls::Hello hello;
  hello.server_name = host(name);
  return hello;
}

std::string get(const std::string& host) {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
}

TEST(Gates, name_no_flag_for_a_name_that_is_allowed_and_was_not_resolved_to_the_address) {
  Gates some = gates({"a.example.org", "b.example.org:443"});
  resolve(some, "a.example.org", {"93.184.215.14"});
  for (const uint16_t port : {uint16_t{443}, uint16_t{80}}) {
    Flow flow = some.dial(Protocol::kTcp, ip("93.184.215.14"), port, kNow).flow;
    const std::string by_port = port == 443 ? "" : "--allow b.example.org:80";
    for (const Decision& allowed : {some.hello(flow, hello_for("b.example.org"), kNow),
                                    some.request(flow, request(get("b.example.org")), kNow)}) {
      EXPECT_FALSE(allowed.allow);
      EXPECT_EQ(allowed.hint, by_port);
    }
    const std::string expected = "--allow evil.net:" + std::to_string(port);
    EXPECT_EQ(some.hello(flow, hello_for("evil.net"), kNow).hint, expected);
    EXPECT_EQ(some.request(flow, request(get("evil.net")), kNow).hint, expected);
  }
}

class ProxyFlow : public testing::Test {
 protected:
  static constexpr const char* kProxy = "proxy/192.0.2.9:3128";
  void rules(std::vector<std::string> allow) {
    allow.emplace_back(kProxy);
    gates_.replace_policy(*policy::Policy::create(allow, {}));
  }
  void open(std::vector<std::string> allow) {
    rules(std::move(allow));
    DialDecision dialled = gates_.dial(Protocol::kTcp, ip("192.0.2.9"), 3128, kNow);
    ASSERT_TRUE(dialled.decision.allow && dialled.flow.proxy);
    flow_ = std::move(dialled.flow);
  }
  Decision ask(const std::string& line) {
    const std::string target = line.substr(line.find(' ') + 1);
    const size_t scheme = target.find("//");
    std::string host = scheme == std::string::npos ? target : target.substr(scheme + 2);
    host = host.substr(0, host.find('/'));
    return gates_.request(flow_, request(line + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"), kNow);
  }

  Gates gates_ = gates({});
  Flow flow_;
};

TEST_F(ProxyFlow, names_the_flag_for_the_target_and_not_for_the_port_of_the_proxy) {
  open({});
  EXPECT_EQ(ask("CONNECT a.example.org:443").hint, "--allow a.example.org:443");
  EXPECT_EQ(ask("GET http://a.example.org/").hint, "--allow a.example.org:80");
  EXPECT_EQ(ask("GET http://a.example.org:8080/").hint, "--allow a.example.org:8080");
  open({"a.example.org:443", "b.example.org:3128"});
  ASSERT_TRUE(ask("CONNECT a.example.org:443").allow);
  EXPECT_EQ(gates_.hello(flow_, hello_for("b.example.org"), kNow).hint,
            "--allow b.example.org:443");
}

TEST_F(ProxyFlow, is_held_to_the_port_it_asked_for_when_the_policy_changes) {
  open({"a.example.org:8080"});
  ASSERT_TRUE(ask("GET http://a.example.org:8080/").allow);
  rules({"a.example.org:8080", "b.example.org"});
  EXPECT_TRUE(gates_.rejudge(flow_, kNow).allow);
  rules({"a.example.org:80"});
  EXPECT_FALSE(gates_.rejudge(flow_, kNow).allow);
}

TEST_F(ProxyFlow, is_held_to_its_tunnel_whatever_is_shown_inside) {
  open({"a.example.org:443", "b.example.org:443", "192.0.2.7:443"});
  ASSERT_TRUE(ask("CONNECT a.example.org:443").allow);
  ASSERT_TRUE(gates_.hello(flow_, hello_for("b.example.org"), kNow).allow);
  EXPECT_TRUE(gates_.rejudge(flow_, kNow).allow);
  rules({"b.example.org:443"});
  EXPECT_FALSE(gates_.rejudge(flow_, kNow).allow);
  open({"192.0.2.7:443"});
  ASSERT_TRUE(ask("CONNECT 192.0.2.7:443").allow);
  EXPECT_TRUE(gates_.rejudge(flow_, kNow).allow);
  rules({});
  EXPECT_FALSE(gates_.rejudge(flow_, kNow).allow);
}

// The proxy's own address is allowed by a rule; that says nothing about what is behind it.
TEST_F(ProxyFlow, takes_a_hello_without_a_name_only_in_a_tunnel_to_an_allowed_address) {
  open({"a.example.org:443", "192.0.2.7:443"});
  ASSERT_TRUE(ask("CONNECT a.example.org:443").allow);
  EXPECT_FALSE(gates_.hello(flow_, {}, kNow).allow);
  EXPECT_FALSE(gates_.opaque(flow_).allow);
  open({"192.0.2.7:443"});
  ASSERT_TRUE(ask("CONNECT 192.0.2.7:443").allow);
  EXPECT_TRUE(gates_.hello(flow_, {}, kNow).allow);
}

TEST_F(ProxyFlow, takes_no_other_name_from_a_request_that_does_not_ask_for_a_proxy) {
  open({"a.example.org"});
  ASSERT_TRUE(ask("GET http://a.example.org:3128/").allow);
  const Decision origin = gates_.request(flow_, request(get("a.example.org")), kNow);
  EXPECT_EQ(origin.reason, Reason::kHostDenied);
}

TEST_F(ProxyFlow, says_of_a_name_in_a_tunnel_what_it_was_read_from) {
  open({"a.example.org:443"});
  EXPECT_EQ(ask("CONNECT a.example.org:443").shown_by, ShownBy::kHostHeader);
  EXPECT_EQ(gates_.hello(flow_, hello_for("a.example.org"), kNow).shown_by, ShownBy::kServerName);
  EXPECT_EQ(gates_.hello(flow_, {}, kNow).shown_by, ShownBy::kNothing);
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

TEST(Gates, take_host_internal_for_the_proxy_a_rule_says_it_is) {
  const std::string connect =
      "CONNECT a.example.org:443 HTTP/1.1\r\nHost: a.example.org:443\r\n\r\n";
  Gates some = gates({"host.internal:3128", "proxy/host.internal:3128", "a.example.org:443"});
  auto dialled = some.dial(Protocol::kTcp, ip("192.0.0.1"), 3128, kNow);
  EXPECT_TRUE(some.request(dialled.flow, request(connect), kNow).allow);
  Gates none = gates({"host.internal:3128", "a.example.org:443"});
  auto plain = none.dial(Protocol::kTcp, ip("192.0.0.1"), 3128, kNow);
  EXPECT_FALSE(none.request(plain.flow, request(connect), kNow).allow);
}

TEST(Gates, judge_what_a_proxy_was_asked_for_itself_as_before_when_the_policy_changes) {
  Gates some = gates({"proxy/host.internal:3128"});
  auto dialled = some.dial(Protocol::kTcp, ip("192.0.0.1"), 3128, kNow);
  ASSERT_TRUE(some.request(dialled.flow, request(get("host.internal")), kNow).allow);
  EXPECT_TRUE(some.rejudge(dialled.flow, kNow).allow);
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
