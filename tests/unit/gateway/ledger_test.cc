#include "gateway/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::gateway {
namespace {

using policy::HostName;

HostName host(const std::string& text) {
  return *HostName::parse(text);
}
IpAddress ip(uint32_t value) {
  return Ipv4{value};
}
constexpr Instant kStart{std::chrono::hours(1)};

bool vouch(Ledger& ledger, uint32_t address, const std::string& name, Duration ttl = 60s,
           Instant now = kStart) {
  return ledger.vouch(ip(address), host(name), {}, ttl, now);
}

TEST(Ledger, knows_nothing_at_first) {
  Ledger ledger;
  const Ledger::Found found = ledger.find(ip(1), kStart);
  EXPECT_TRUE(found.names.empty() && found.expired.empty() && found.hold.empty());
}

TEST(Ledger, keeps_a_pair_for_its_ttl_and_at_least_ten_minutes) {
  struct Case {
    Duration ttl, later;
    bool live;
  };
  for (const Case& each : {Case{0s, 599s, true}, Case{0s, 600s, false}, Case{3600s, 3599s, true},
                           Case{3600s, 3600s, false}}) {
    Ledger ledger;
    ASSERT_TRUE(vouch(ledger, 1, "a.b", each.ttl));
    const Ledger::Found found = ledger.find(ip(1), kStart + each.later);
    EXPECT_EQ(found.names.size(), each.live ? 1U : 0U);
    EXPECT_EQ(found.expired.size(), each.live ? 0U : 1U);
  }
}

TEST(Ledger, survives_the_largest_ttl_there_is) {
  Ledger ledger;
  ASSERT_TRUE(vouch(ledger, 1, "a.b", std::chrono::seconds(0x7FFFFFFF)));
  EXPECT_EQ(ledger.find(ip(1), kStart + std::chrono::hours(24 * 365)).names.size(), 1U);
}

TEST(Ledger, renews_without_shortening) {
  Ledger ledger;
  ASSERT_TRUE(vouch(ledger, 1, "a.b", 7200s));
  ASSERT_TRUE(vouch(ledger, 1, "a.b", 60s, kStart + 10s));
  EXPECT_EQ(ledger.find(ip(1), kStart + 7000s).names.size(), 1U);
  EXPECT_EQ(ledger.pairs(), 1U);
}

TEST(Ledger, keeps_the_names_that_share_an_address_and_their_aliases_once) {
  Ledger ledger;
  const std::vector<HostName> chain = {host("cdn.net")};
  ASSERT_TRUE(ledger.vouch(ip(1), host("a.b"), chain, 60s, kStart));
  ASSERT_TRUE(ledger.vouch(ip(1), host("c.d"), chain, 60s, kStart));
  const Ledger::Found found = ledger.find(ip(1), kStart);
  EXPECT_THAT(found.names, testing::ElementsAre(host("a.b"), host("c.d")));
  EXPECT_THAT(found.aliases, testing::ElementsAre(host("cdn.net")));
}

TEST(Ledger, does_not_expire_what_a_flow_holds) {
  Ledger ledger;
  ASSERT_TRUE(vouch(ledger, 1, "a.b"));
  ASSERT_TRUE(vouch(ledger, 1, "c.d", 7200s));
  Ledger::Hold hold = ledger.find(ip(1), kStart).hold;
  EXPECT_EQ(ledger.find(ip(1), kStart + 7200s).names.size(), 2U);
  hold.clear();
  EXPECT_EQ(ledger.find(ip(1), kStart + 7200s).names.size(), 0U);
}

TEST(Ledger, counts_the_live_addresses_of_a_name) {
  Ledger ledger;
  ASSERT_TRUE(vouch(ledger, 1, "a.b", 60s));
  ASSERT_TRUE(vouch(ledger, 2, "a.b", 7200s));
  EXPECT_EQ(ledger.addresses_of(host("a.b"), kStart), 2U);
  EXPECT_EQ(ledger.addresses_of(host("a.b"), kStart + 3600s), 1U);
  EXPECT_EQ(ledger.addresses_of(host("c.d"), kStart), 0U);
}

TEST(Ledger, when_full_lets_the_address_unused_for_longest_go) {
  Ledger ledger;
  for (uint32_t i = 0; i < Ledger::kMaxAddresses; ++i) ASSERT_TRUE(vouch(ledger, i, "a.b"));
  (void)ledger.find(ip(0), kStart);  // used
  ASSERT_TRUE(vouch(ledger, 100000, "a.b"));
  EXPECT_EQ(ledger.addresses(), Ledger::kMaxAddresses);
  EXPECT_EQ(ledger.find(ip(0), kStart).names.size(), 1U);
  EXPECT_EQ(ledger.find(ip(1), kStart).names.size(), 0U);
  EXPECT_EQ(ledger.find(ip(100000), kStart).names.size(), 1U);
}

TEST(Ledger, when_full_keeps_what_is_held) {
  Ledger ledger;
  for (uint32_t i = 0; i < Ledger::kMaxAddresses; ++i) ASSERT_TRUE(vouch(ledger, i, "a.b"));
  const Ledger::Hold hold = ledger.find(ip(0), kStart).hold;
  for (uint32_t i = 1; i < Ledger::kMaxAddresses; ++i) (void)ledger.find(ip(i), kStart);
  ASSERT_TRUE(vouch(ledger, 100000, "a.b"));
  EXPECT_EQ(ledger.find(ip(0), kStart).names.size(), 1U);
}

TEST(Ledger, full_of_held_addresses_takes_nothing_in) {
  Ledger ledger;
  std::vector<Ledger::Hold> holds;
  for (uint32_t i = 0; i < Ledger::kMaxAddresses; ++i) {
    ASSERT_TRUE(vouch(ledger, i, "a.b"));
    holds.push_back(ledger.find(ip(i), kStart).hold);
  }
  EXPECT_FALSE(vouch(ledger, 100000, "a.b"));
  holds.pop_back();
  EXPECT_TRUE(vouch(ledger, 100000, "a.b"));
}

std::string invented(size_t i) {
  return "n" + std::to_string(i) + ".a.b";
}

TEST(Ledger, bounds_the_names_a_guest_invents_for_one_address) {
  Ledger ledger;
  ASSERT_TRUE(vouch(ledger, 7, "other.net"));
  for (size_t i = 0; i < 2 * Ledger::kMaxPairs; ++i) (void)vouch(ledger, 1, invented(i));
  EXPECT_LE(ledger.pairs(), Ledger::kMaxPairs);
  EXPECT_EQ(ledger.find(ip(1), kStart).hold.size(), Ledger::kMaxNames);
  EXPECT_EQ(ledger.find(ip(7), kStart).names.size(), 1U);
}

TEST(Ledger, lets_the_name_nearest_to_its_end_go_and_none_that_is_held) {
  Ledger ledger;
  ASSERT_TRUE(vouch(ledger, 1, "held.a.b", 60s));
  const Ledger::Hold held = ledger.find(ip(1), kStart).hold;
  ASSERT_TRUE(vouch(ledger, 1, "short.a.b", 3600s));
  for (size_t i = 2; i <= Ledger::kMaxNames; ++i) ASSERT_TRUE(vouch(ledger, 1, invented(i), 7200s));
  Ledger::Found found = ledger.find(ip(1), kStart);
  EXPECT_THAT(found.names, testing::Contains(host("held.a.b")));
  EXPECT_THAT(found.names, testing::Not(testing::Contains(host("short.a.b"))));
  EXPECT_EQ(ledger.addresses_of(host("short.a.b"), kStart), 0U);
  EXPECT_FALSE(vouch(ledger, 1, "more.a.b")) << "a flow holds every name";
  EXPECT_TRUE(vouch(ledger, 1, "held.a.b")) << "which can still be renewed";
}

}  // namespace
}  // namespace sandbox::gateway
