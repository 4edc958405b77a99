#include "policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/policy/vectors.h"

namespace sandbox::policy {
namespace {

using ::testing::HasSubstr;
using Rules = std::vector<std::string>;

const nlohmann::json& vectors() {
  static const nlohmann::json all = test::load_vectors("host-patterns.json");
  return all;
}

Policy make(const Rules& allow, const Rules& deny = {}) {
  auto policy = Policy::create(allow, deny);
  EXPECT_TRUE(policy) << policy.error().message;
  return *policy;
}

HostName name(std::string_view text) {
  return *HostName::parse(text);
}
IpAddress address(std::string_view text) {
  return *IpAddress::parse(text);
}

TEST(PolicyCheck, AnswersAsTheVectorsSay) {
  ASSERT_GE(vectors()["policies"].size(), 12U);
  for (const auto& entry : vectors()["policies"]) {
    const Policy policy = make(test::strings(entry, "allow"), test::strings(entry, "deny"));
    for (const auto& check : entry["checks"]) {
      const auto verdict = policy.check(check["subject"].get<std::string>());
      ASSERT_TRUE(verdict) << entry["name"] << check << verdict.error().message;
      EXPECT_EQ(verdict->allow, check["allow"].get<bool>()) << entry["name"] << check;
      EXPECT_EQ(text(verdict->reason), check["reason"].get<std::string>())
          << entry["name"] << check;
      EXPECT_EQ(verdict->rule, check.value("rule", verdict->rule)) << entry["name"] << check;
    }
  }
}

TEST(PolicyCheck, IsAboutOneHost) {
  const Policy policy = make({"*.example.org"});
  for (const auto* subject :
       {"*.example.org", "10.0.0.0/8", "plain/example.org:25", "proxy/example.org:25",
        "a.example.org@10.0.0.0/8", "", "a b", "127.1"})
    EXPECT_FALSE(policy.check(subject)) << subject;
}

TEST(PolicyCreate, RefusesRulesThatMeanNothingInTheirList) {
  for (const auto& entry : vectors()["refused_policies"]) {
    const auto policy = Policy::create(test::strings(entry, "allow"), test::strings(entry, "deny"));
    ASSERT_FALSE(policy) << entry;
    EXPECT_THAT(policy.error().message, HasSubstr(entry["reason"].get<std::string>()));
  }
}

// The gate's question and the check's answer must be the same for every rule and subject of the
// vectors.
TEST(PolicyCheck, AgreesWithTheGates) {
  for (const auto& entry : vectors()["policies"]) {
    const Policy policy = make(test::strings(entry, "allow"), test::strings(entry, "deny"));
    for (const auto& check : entry["checks"]) {
      const auto asked = HostPattern::parse(check["subject"].get<std::string>());
      if (asked->scope() != Scope::kAny || asked->range()) continue;
      const bool expected = check["allow"];
      if (const auto literal = asked->exact_address(); literal && asked->port()) {
        EXPECT_EQ(policy.dial({Protocol::kTcp, *literal, *asked->port()}).allow, expected) << check;
      } else if (!literal && !asked->port()) {
        EXPECT_EQ(policy.query(*asked->exact_name()).allow, expected) << check;
      }
    }
  }
}

TEST(PolicyDial, WithoutNamesOrLiteralIsUnresolved) {
  const Policy policy = make({"example.org"});
  const auto verdict = policy.dial({Protocol::kTcp, address("93.184.215.14"), 443});
  EXPECT_FALSE(verdict.allow);
  EXPECT_EQ(verdict.reason, Reason::kUnresolvedAddress);
}

TEST(PolicyDial, WithOtherNamesHasNoAllowRule) {
  const Policy policy = make({"example.org:443"});
  const HostName names[] = {name("example.org")};
  EXPECT_EQ(policy.dial({Protocol::kTcp, address("93.184.215.14"), 80, names}).reason,
            Reason::kNoAllowRule);
  EXPECT_TRUE(policy.dial({Protocol::kTcp, address("93.184.215.14"), 443, names}).allow);
}

TEST(PolicyDial, DeniesThroughAnyNameOrAlias) {
  const Policy policy = make({"a.example.org"}, {"b.example.org", "*.ads.net:443"});
  const HostName a[] = {name("a.example.org")};
  const HostName both[] = {name("a.example.org"), name("b.example.org")};
  const HostName alias[] = {name("x.ads.net")};
  const IpAddress at = address("93.184.215.14");
  EXPECT_TRUE(policy.dial({Protocol::kTcp, at, 443, a}).allow);
  EXPECT_EQ(policy.dial({Protocol::kTcp, at, 443, both}).rule, "b.example.org");
  EXPECT_EQ(policy.dial({Protocol::kTcp, at, 443, a, alias}).rule, "*.ads.net:443");
  EXPECT_TRUE(policy.dial({Protocol::kTcp, at, 80, a, alias}).allow);
}

TEST(PolicyDial, AnAliasNeverAllows) {
  const Policy policy = make({"example.cdn.net"});
  const HostName names[] = {name("www.example.org")};
  const HostName alias[] = {name("example.cdn.net")};
  EXPECT_EQ(policy.dial({Protocol::kTcp, address("93.184.215.14"), 443, names, alias}).reason,
            Reason::kNoAllowRule);
}

TEST(PolicyDial, AddressesOfTheHostAreReachedOnlyByTheirExactRule) {
  const IpAddress own = address("192.168.1.5");
  const IpAddress host[] = {own};
  const HostName names[] = {name("nas.example.org")};
  EXPECT_EQ(make({"*.example.org@192.168.1.0/24"})
                .dial({Protocol::kTcp, own, 22, names, {}, host})
                .reason,
            Reason::kRebinding);
  EXPECT_FALSE(make({"192.168.1.0/24"}).dial({Protocol::kTcp, own, 22, {}, {}, host}).allow);
  EXPECT_TRUE(make({"192.168.1.5"}).dial({Protocol::kTcp, own, 22, {}, {}, host}).allow);
}

TEST(PolicyVouch, SaysHowToAllowAPrivateAddress) {
  const Policy policy = make({"*.example.org"});
  const auto verdict = policy.may_vouch(name("db.example.org"), address("10.0.0.1"), {});
  EXPECT_EQ(verdict.reason, Reason::kRebinding);
  EXPECT_EQ(verdict.detail, "resolves to private 10.0.0.1; allow with db.example.org@10.0.0.1");
  const auto six = policy.may_vouch(name("db.example.org"), address("fd00::1"), {});
  EXPECT_EQ(six.detail, "resolves to private fd00::1; allow with db.example.org@[fd00::1]");
}

TEST(PolicyVouch, WhatItSuggestsIsAccepted) {
  for (const auto* text : {"10.0.0.1", "100.64.0.1", "fd00::1", "2001:db8::1"}) {
    const auto verdict =
        make({"db.example.org"}).may_vouch(name("db.example.org"), address(text), {});
    ASSERT_FALSE(verdict.allow);
    const std::string rule = verdict.detail.substr(verdict.detail.rfind(' ') + 1);
    EXPECT_TRUE(make({rule}).may_vouch(name("db.example.org"), address(text), {}).allow) << rule;
  }
}

TEST(PolicyVouch, NeverByAnyRuleForLoopbackMetadataAndTheHost) {
  const IpAddress host[] = {address("192.168.1.5")};
  const Policy policy = make({"*.example.org@0.0.0.0/0", "*.example.org@[::/0]"});
  for (const auto* text :
       {"127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "192.168.1.5",
        "::1", "fe80::1", "ff02::1", "::", "::ffff:127.0.0.1", "::ffff:169.254.169.254"})
    EXPECT_EQ(policy.may_vouch(name("a.example.org"), address(text), host).reason,
              Reason::kRebinding)
        << text;
  EXPECT_TRUE(policy.may_vouch(name("a.example.org"), address("192.168.1.6"), host).allow);
  EXPECT_TRUE(policy.may_vouch(name("a.example.org"), address("::ffff:10.0.0.1"), host).allow);
}

TEST(PolicyVouch, HostInternalComesFromNoAnswer) {
  EXPECT_FALSE(
      make({"host.internal:80"}).may_vouch(host_internal(), address("93.184.215.14"), {}).allow);
}

TEST(PolicyName, MustBeVouchedAllowedAndNotDenied) {
  const Policy policy = make({"*.example.org"}, {"c.example.org:443"});
  const HostName vouched[] = {name("a.example.org"), name("c.example.org"), name("evil.net")};
  const IpAddress at = address("93.184.215.14");
  const auto judge = [&](std::string_view shown, uint16_t port) {
    const HostName n = name(shown);
    return policy.name({n, port, at, vouched}, Reason::kSniDenied);
  };
  EXPECT_TRUE(judge("a.example.org", 443).allow);
  EXPECT_EQ(judge("b.example.org", 443).reason, Reason::kSniDenied);
  EXPECT_THAT(judge("b.example.org", 443).detail, HasSubstr("was not resolved to 93.184.215.14"));
  EXPECT_EQ(judge("evil.net", 443).reason, Reason::kSniDenied);
  EXPECT_EQ(judge("c.example.org", 443).rule, "c.example.org:443");
  EXPECT_TRUE(judge("c.example.org", 8443).allow);
}

TEST(PolicyScopes, PlainAndProxyFlowsAreRecognised) {
  const Policy policy =
      make({"plain/mail.example.org:25", "proxy/192.0.2.7:3128", "mail.example.org:443"});
  const HostName names[] = {name("mail.example.org")};
  const IpAddress at = address("93.184.215.14");
  EXPECT_EQ(policy.plain({Protocol::kTcp, at, 25, names}), "plain/mail.example.org:25");
  EXPECT_EQ(policy.plain({Protocol::kTcp, at, 443, names}), std::nullopt);
  EXPECT_EQ(policy.proxy({Protocol::kTcp, at, 25, names}), std::nullopt);
  EXPECT_EQ(policy.proxy({Protocol::kTcp, address("192.0.2.7"), 3128}), "proxy/192.0.2.7:3128");
}

TEST(PolicyScopes, ProxyTargetsAreJudgedWithoutBeingResolved) {
  const Policy policy = make({"a.example.org:443", "192.0.2.7:80"}, {"b.example.org"});
  EXPECT_TRUE(policy.proxy_target(name("a.example.org"), 443).allow);
  EXPECT_EQ(policy.proxy_target(name("a.example.org"), 22).reason, Reason::kHostDenied);
  EXPECT_EQ(policy.proxy_target(name("b.example.org"), 443).rule, "b.example.org");
  EXPECT_TRUE(policy.proxy_target(address("192.0.2.7"), 80).allow);
  EXPECT_EQ(policy.proxy_target(address("169.254.169.254"), 80).reason, Reason::kHostDenied);
  EXPECT_FALSE(make({"host.internal:80"}).proxy_target(host_internal(), 80).allow);
}

TEST(Reason, TextFormsReadBack) {
  for (int i = 0; i <= static_cast<int>(Reason::kFlowLimit); ++i) {
    const auto reason = static_cast<Reason>(i);
    ASSERT_FALSE(text(reason).empty()) << i;
    EXPECT_EQ(parse_reason(text(reason)), reason);
  }
  EXPECT_EQ(parse_reason("other"), std::nullopt);
}

}  // namespace
}  // namespace sandbox::policy
