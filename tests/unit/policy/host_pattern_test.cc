// Driven by tests/data/host-patterns.json; see the README beside it.

#include "policy/host_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/policy/vectors.h"

namespace sandbox::policy {
namespace {

using ::testing::HasSubstr;

const nlohmann::json& vectors() {
  static const nlohmann::json all = test::load_vectors("host-patterns.json");
  return all;
}

TEST(HostPattern, RefusesWhatIsNoRuleAndSaysWhy) {
  ASSERT_GE(vectors()["invalid"].size(), 40U);
  for (const auto& entry : vectors()["invalid"]) {
    const std::string pattern = entry["pattern"];
    const auto parsed = HostPattern::parse(pattern);
    ASSERT_FALSE(parsed) << pattern << " was accepted as " << parsed->text();
    EXPECT_THAT(parsed.error().message, HasSubstr(entry["reason"].get<std::string>())) << pattern;
    EXPECT_THAT(parsed.error().hint, HasSubstr(entry.value("hint", ""))) << pattern;
    EXPECT_EQ(parsed.error().code, Code::kInvalid) << pattern;
  }
}

TEST(HostPattern, ReadsBackAsItsCanonicalForm) {
  for (const auto& entry : vectors()["canonical"]) {
    const std::string pattern = entry["pattern"];
    const auto parsed = HostPattern::parse(pattern);
    ASSERT_TRUE(parsed) << pattern << ": " << parsed.error().message;
    EXPECT_EQ(parsed->text(), entry["text"].get<std::string>());
    const auto again = HostPattern::parse(parsed->text());
    ASSERT_TRUE(again) << parsed->text() << ": " << again.error().message;
    EXPECT_EQ(*again, *parsed) << pattern;
  }
}

TEST(HostPattern, MatchesNamesAndAddresses) {
  ASSERT_GE(vectors()["matches"].size(), 80U);
  for (const auto& entry : vectors()["matches"]) {
    const std::string subject = entry["subject"];
    const auto pattern = HostPattern::parse(entry["pattern"].get<std::string>());
    ASSERT_TRUE(pattern) << entry;
    const auto address = IpAddress::parse(subject);
    const auto name = HostName::parse(subject);
    ASSERT_TRUE(address || name) << entry;
    ASSERT_FALSE(address && name) << "both a name and an address: " << subject;
    EXPECT_EQ(address ? pattern->matches(*address) : pattern->matches(*name),
              entry["match"].get<bool>())
        << entry;
  }
}

TEST(HostPattern, EveryInvalidMessageNamesTheRule) {
  for (const auto& entry : vectors()["invalid"]) {
    const auto parsed = HostPattern::parse(entry["pattern"].get<std::string>());
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().message.front(), '\'') << parsed.error().message;
    for (const char c : parsed.error().message + parsed.error().hint)
      EXPECT_GE(static_cast<unsigned char>(c), 0x20) << "a control byte in: " << entry;
  }
}

TEST(HostPattern, BothPlacesOfThePortMeanTheSame) {
  EXPECT_EQ(*HostPattern::parse("a.example.org:443@10.0.0.0/8"),
            *HostPattern::parse("a.example.org@10.0.0.0/8:443"));
}

}  // namespace
}  // namespace sandbox::policy
