#include "cli/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::cli {
namespace {

using audit::Record;
using testing::HasSubstr;

Record denied(const char* proto, const char* reason, std::vector<std::string> names,
              const char* address = "", uint16_t port = 0) {
  Record record;
  record.proto = proto;
  record.verdict = audit::Outcome::kDeny;
  record.reason = reason;
  record.names = std::move(names);
  record.address = IpAddress::parse(address);
  record.port = port;
  return record;
}

TEST(Explain, ProposesTheNarrowestRuleThatWouldLetItPass) {
  const auto shown = [](Record record, const char* name) {
    (record.proto == "tls" ? record.sni : record.host) = name;
    return record;
  };
  const std::pair<Record, const char*> cases[] = {
      {denied("dns", "no-allow-rule", {"a.example.org"}), "a.example.org"},
      {denied("tcp", "no-allow-rule", {"a.example.org"}, "9.9.9.1", 80), "a.example.org:80"},
      {denied("udp", "no-allow-rule", {"a.example.org"}, "9.9.9.1", 123), "udp/a.example.org:123"},
      {denied("icmp", "no-allow-rule", {"a.example.org"}, "9.9.9.1"), "icmp/a.example.org"},
      {denied("tcp", "unresolved-address", {}, "9.9.9.1", 443), "9.9.9.1:443"},
      {denied("tcp", "unresolved-address", {}, "2001:db8::1", 443), "[2001:db8::1]:443"},
      {denied("udp", "unresolved-address", {}, "9.9.9.1", 53), "udp/9.9.9.1:53"},
      {denied("icmp", "unresolved-address", {}, "9.9.9.1"), "icmp/9.9.9.1"},
      {denied("dns", "rebinding", {"db.example.org"}, "10.0.0.1"), "db.example.org@10.0.0.1"},
      {shown(denied("tls", "sni-denied", {"a.example.org"}, "9.9.9.1", 443), "b.example.org"),
       "b.example.org:443"},
      {shown(denied("http", "host-denied", {"a.example.org"}, "9.9.9.1", 80), "b.example.org"),
       "b.example.org:80"},
      {denied("udp", "quic", {"a.example.org"}, "9.9.9.1", 443), "a.example.org:443"},
  };
  for (const auto& [record, rule] : cases) {
    const Explanation said = explain(record);
    EXPECT_EQ(said.rule, rule) << record.proto << " " << record.reason;
    EXPECT_FALSE(said.why.empty());
    EXPECT_FALSE(said.reach.empty());
  }
}

TEST(Explain, ProposesNoRuleWhereNoneHelps) {
  for (const Record& record : {denied("dns", "deny-rule", {"ads.example.org"}),
                               denied("dns", "rebinding", {"a.example.org"}, "169.254.169.254"),
                               denied("tcp", "expired-address", {"a.example.org"}, "9.9.9.1", 443),
                               denied("tcp", "sni-unreadable", {}, "9.9.9.1", 443),
                               denied("tls", "ech", {"a.example.org"}, "9.9.9.1", 443),
                               denied("tcp", "flow-limit", {}, "9.9.9.1", 443),
                               denied("tcp", "unresolved-address", {}, "192.0.0.1", 8080),
                               denied("dns", "no-allow-rule", {"host.internal"}),
                               denied("dns", "no-allow-rule", {"not a name"})}) {
    const Explanation said = explain(record);
    EXPECT_EQ(said.rule, "") << record.reason;
    EXPECT_TRUE(!said.instead.empty() || record.names.front() == "not a name") << record.reason;
  }
}

TEST(Explain, ADenyRuleOnTheStreamIsNamed) {
  Record record = denied("tls", "sni-denied", {"a.example.org"}, "9.9.9.1", 443);
  record.sni = "b.example.org";
  record.rule = "*.example.org:443";
  const Explanation said = explain(record);
  EXPECT_EQ(said.rule, "");
  EXPECT_THAT(said.why, HasSubstr("'*.example.org:443'"));
}

TEST(Explain, WhatWasAllowedIsExplainedByItsRule) {
  Record record = denied("tcp", "allow-rule", {"a.example.org"}, "9.9.9.1", 443);
  record.verdict = audit::Outcome::kAllow;
  record.rule = "*.example.org";
  const Explanation said = explain(record);
  EXPECT_THAT(said.why, HasSubstr("'*.example.org'"));
  EXPECT_THAT(said.reach, HasSubstr("every name below it"));
  EXPECT_EQ(said.rule, "");
}

TEST(DecisionId, IsASandboxAndANumber) {
  EXPECT_EQ(parse_decision_id("demo:12")->seq, 12U);
  EXPECT_EQ(parse_decision_id("demo")->seq, 0U);
  EXPECT_EQ(parse_decision_id("demo.x-1")->sandbox, "demo.x-1");
  for (const char* text : {"", ":1", "demo:", "demo:0", "demo:x", "demo:1:2", "demo:-1", "../x:1"})
    EXPECT_FALSE(parse_decision_id(text)) << text;
}

}  // namespace
}  // namespace sandbox::cli
