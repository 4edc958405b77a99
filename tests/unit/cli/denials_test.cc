#include "cli/denials.h"

#include <gtest/gtest.h>

namespace sandbox::cli {
namespace {

audit::Record denial(std::string proto, std::string reason, std::vector<std::string> names,
                     uint16_t port = 0) {
  audit::Record record;
  record.verdict = audit::Outcome::kDeny;
  record.proto = std::move(proto);
  record.reason = std::move(reason);
  record.names = std::move(names);
  record.port = port;
  if (record.proto != "dns") record.address = IpAddress::parse("192.0.2.1");
  return record;
}

TEST(Denials, NamesEachDestinationOnceAndProposesTheFlag) {
  Denials denials;
  denials.add(denial("dns", "no-allow-rule", {"example.org"}));
  denials.add(denial("dns", "no-allow-rule", {"example.org"}));
  denials.add(denial("tcp", "unresolved-address", {}, 80));
  EXPECT_EQ(denials.summary(),
            "denied: example.org (no-allow-rule), tcp 192.0.2.1:80 (unresolved-address)");
  EXPECT_EQ(denials.flag(), "--allow example.org");
}

TEST(Denials, ProposesAPortForAServiceOfTheHost) {
  Denials denials;
  denials.add(denial("dns", "no-allow-rule", {"host.internal"}));
  EXPECT_EQ(denials.flag(), "--allow host.internal:PORT");
}

TEST(Denials, ProposesNothingAgainstADenyRule) {
  Denials denials;
  denials.add(denial("dns", "deny-rule", {"ads.example.org"}));
  EXPECT_EQ(denials.flag(), "");
}

TEST(Denials, ProposesNothingForWhatOnlyAnAddressWasSeenOf) {
  Denials denials;
  denials.add(denial("tcp", "unresolved-address", {}, 443));
  EXPECT_EQ(denials.flag(), "");
}

TEST(Denials, KeepsTheExplanationThatARebindingCarries) {
  Denials denials;
  auto record = denial("dns", "rebinding", {"db.corp.example"});
  record.text = "resolves to private 10.0.0.1; allow with db.corp.example@10.0.0.1";
  denials.add(record);
  EXPECT_EQ(denials.summary(),
            "denied: db.corp.example (rebinding: resolves to private 10.0.0.1; allow with "
            "db.corp.example@10.0.0.1)");
}

TEST(Denials, BehindAProxyTheNameIsShownAndNotTheAddressThatStandsForIt) {
  Denials denials;
  auto record = denial("tcp", "upstream-proxy", {"www.example.org"}, 443);
  record.text = "the upstream proxy proxy.test:3128 answered 403 Forbidden";
  denials.add(record);
  EXPECT_EQ(denials.summary(),
            "denied: tcp www.example.org:443 (upstream-proxy: the upstream proxy proxy.test:3128 "
            "answered 403 Forbidden)");
  EXPECT_EQ(denials.flag(), "");
}

TEST(Denials, CountsWhatIsNotShown) {
  Denials denials;
  for (const char* name : {"a.test", "b.test", "c.test", "d.test", "e.test"})
    denials.add(denial("dns", "no-allow-rule", {name}));
  EXPECT_NE(denials.summary().find("c.test"), std::string::npos);
  EXPECT_EQ(denials.summary().find("d.test"), std::string::npos);
  EXPECT_NE(denials.summary().find(" and 2 more"), std::string::npos);
}

TEST(Denials, PassesOverWhatWasAllowed) {
  Denials denials;
  auto record = denial("tcp", "allow-rule", {"example.org"}, 443);
  record.verdict = audit::Outcome::kAllow;
  denials.add(record);
  EXPECT_TRUE(denials.empty());
}

}  // namespace
}  // namespace sandbox::cli
