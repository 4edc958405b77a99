// What the gates say about asking: which rule is missing, and what a grant allows for how long.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/gates.h"

namespace sandbox::gateway {
namespace {

using policy::HostName;
using policy::Protocol;
using policy::Reason;
using std::chrono::seconds;

constexpr Instant kNow{std::chrono::hours(1)};

HostName host(const std::string& text) {
  return *HostName::parse(text);
}
IpAddress ip(const std::string& text) {
  return *IpAddress::parse(text);
}
policy::HostPattern rule(const std::string& text) {
  return *policy::HostPattern::parse(text);
}
Gates gates(std::vector<std::string> allow, std::vector<std::string> deny = {}) {
  return {*policy::Policy::create(allow, deny), {{ip("9.9.9.77")}, *Ipv4::parse("192.0.0.1")}};
}
std::string text(const std::optional<policy::HostPattern>& rule) {
  return rule ? rule->text() : "none";
}
bool resolves(Gates& gates, const std::string& name, const std::string& address) {
  const std::vector<dns::AddressRecord> answers = {{*Ipv4::parse(address), 60}};
  return !gates.resolved(host(name), {}, answers, kNow).vouched.empty();
}
bool looked_up(const Gates& gates, const std::string& name) {
  return gates.query({dns::Name::of(host(name)), dns::Type::kA}).decision.allow;
}
bool dialled(Gates& gates, const std::string& address, uint16_t port) {
  return gates.dial(Protocol::kTcp, ip(address), port, kNow).decision.allow;
}
tls::Hello hello(const std::string& name) {
  tls::Hello out;
  out.server_name = host(name);
  return out;
}

TEST(MissingRule, OfALookupIsItsName) {
  const Gates some = gates({"a.example.org", "port.example.org:443"}, {"*.ads.net"});
  EXPECT_EQ(text(some.missing_rule(host("b.example.org"))), "b.example.org");
  EXPECT_EQ(text(some.missing_rule(host("a.example.org"))), "none") << "it is allowed";
  EXPECT_EQ(text(some.missing_rule(host("x.ads.net"))), "none") << "a deny rule is not asked about";
  EXPECT_EQ(text(some.missing_rule(host("host.internal"))), "none");
  EXPECT_EQ(text(some.missing_rule(host("8.8.8.8.in-addr.arpa"))), "none");
}

TEST(MissingRule, OfADialIsItsNameAndPortOrItsAddress) {
  Gates some = gates({"a.example.org:443", "host.internal:80"}, {"9.9.9.2", "a.example.org:25"});
  ASSERT_TRUE(resolves(some, "a.example.org", "9.9.9.1"));
  const auto missing = [&](const char* address, uint16_t port) {
    return text(some.missing_rule(ip(address), port, kNow));
  };
  EXPECT_EQ(missing("9.9.9.1", 80), "a.example.org:80");
  EXPECT_EQ(missing("9.9.9.1", 443), "none") << "it is allowed";
  EXPECT_EQ(missing("9.9.9.1", 25), "none") << "a deny rule is not asked about";
  EXPECT_EQ(missing("9.9.9.2", 80), "none");
  EXPECT_EQ(missing("9.9.9.3", 80), "9.9.9.3:80");
  EXPECT_EQ(missing("10.0.0.1", 22), "10.0.0.1:22");
  EXPECT_EQ(missing("192.0.0.1", 81), "host.internal:81");
}

TEST(MissingRule, NeverLeadsToTheHostItselfByItsAddressOrToLinkLocal) {
  Gates some = gates({});
  for (const char* address :
       {"9.9.9.77", "192.0.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0"})
    EXPECT_EQ(text(some.missing_rule(ip(address), 80, kNow)), "none") << address;
}

TEST(Grant, AllowsALookupAndOneConnectionWithItsName) {
  Gates some = gates({});
  EXPECT_FALSE(looked_up(some, "a.example.org"));
  some.grant(rule("a.example.org"), kNow);
  EXPECT_TRUE(looked_up(some, "a.example.org"));
  EXPECT_FALSE(looked_up(some, "b.example.org"));
  ASSERT_TRUE(resolves(some, "a.example.org", "9.9.9.1"));
  DialDecision dial = some.dial(Protocol::kTcp, ip("9.9.9.1"), 443, kNow);
  ASSERT_TRUE(dial.decision.allow);
  EXPECT_TRUE(dialled(some, "9.9.9.1", 443)) << "none has come to be yet";
  some.used(dial.flow);
  EXPECT_FALSE(dialled(some, "9.9.9.1", 443));
  EXPECT_FALSE(looked_up(some, "a.example.org"));
  // The one that has come to be goes on, held to its name.
  EXPECT_TRUE(some.hello(dial.flow, hello("a.example.org"), kNow).allow);
  EXPECT_FALSE(some.hello(dial.flow, hello("b.example.org"), kNow).allow);
}

TEST(Grant, EndsUnusedAfter30Seconds) {
  Gates some = gates({});
  EXPECT_EQ(some.next_grant_end(), Instant::never());
  some.grant(rule("a.example.org"), kNow);
  EXPECT_EQ(some.next_grant_end(), kNow + seconds(30));
  some.expire_grants(kNow + seconds(30) - 1ns);
  EXPECT_TRUE(looked_up(some, "a.example.org"));
  some.expire_grants(kNow + seconds(30));
  EXPECT_FALSE(looked_up(some, "a.example.org"));
  EXPECT_EQ(some.next_grant_end(), Instant::never());
}

TEST(Grant, OfAnAddressAllowsThatPortOnly) {
  Gates some = gates({});
  some.grant(rule("9.9.9.1:443"), kNow);
  EXPECT_TRUE(dialled(some, "9.9.9.1", 443));
  EXPECT_FALSE(dialled(some, "9.9.9.1", 80));
  EXPECT_FALSE(dialled(some, "9.9.9.2", 443));
}

TEST(Grant, SurvivesANewPolicyUnlessItDenies) {
  Gates some = gates({});
  some.grant(rule("a.example.org"), kNow);
  ASSERT_TRUE(resolves(some, "a.example.org", "9.9.9.1"));
  DialDecision dial = some.dial(Protocol::kTcp, ip("9.9.9.1"), 443, kNow);
  some.used(dial.flow);
  const std::vector<std::string> allow = {"b.example.org"};
  some.replace_policy(*policy::Policy::create(allow, {}));
  EXPECT_TRUE(some.rejudge(dial.flow, kNow).allow);
  const std::vector<std::string> deny = {"a.example.org"};
  some.replace_policy(*policy::Policy::create(allow, deny));
  EXPECT_FALSE(some.rejudge(dial.flow, kNow).allow);
  EXPECT_FALSE(some.hello(dial.flow, hello("a.example.org"), kNow).allow);
}

TEST(Grant, IsNotSpentByWhatARuleAllows) {
  Gates some = gates({"a.example.org:443"});
  some.grant(rule("a.example.org:80"), kNow);
  ASSERT_TRUE(resolves(some, "a.example.org", "9.9.9.1"));
  const DialDecision by_rule = some.dial(Protocol::kTcp, ip("9.9.9.1"), 443, kNow);
  EXPECT_FALSE(by_rule.flow.grant);
  some.used(by_rule.flow);
  EXPECT_TRUE(dialled(some, "9.9.9.1", 80));
}

TEST(Decided, IsWhatTheRulesSayOfAQuestionByNow) {
  const Gates some = gates({"a.example.org:443", "9.9.9.0/24"}, {"ads.net", "8.8.8.8"});
  for (const auto& [missing, decided] :
       std::initializer_list<std::pair<const char*, bool>>{{"a.example.org", true},
                                                           {"a.example.org:443", true},
                                                           {"a.example.org:80", false},
                                                           {"b.example.org", false},
                                                           {"ads.net", true},
                                                           {"ads.net:80", true},
                                                           {"9.9.9.1:80", true},
                                                           {"8.8.8.8:53", true},
                                                           {"7.7.7.7:80", false},
                                                           {"host.internal:80", false}})
    EXPECT_EQ(some.has_decided(rule(missing)), decided) << missing;
}

}  // namespace
}  // namespace sandbox::gateway
