#include "policy/host_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::policy {
namespace {

using ::testing::HasSubstr;

std::vector<ByteView> views(const std::vector<std::string>& labels) {
  std::vector<ByteView> out;
  for (const auto& label : labels) out.push_back(as_bytes(label));
  return out;
}

TEST(HostName, FoldsCaseAndDropsOneTrailingDot) {
  EXPECT_EQ(HostName::parse("WWW.Example.Org")->text(), "www.example.org");
  EXPECT_EQ(HostName::parse("example.org.")->text(), "example.org");
  EXPECT_FALSE(HostName::parse("example.org.."));
  EXPECT_FALSE(HostName::parse("."));
}

TEST(HostName, AllowsUnderscoreAndHyphenAnywhere) {
  EXPECT_TRUE(HostName::parse("_dmarc.example.org"));
  EXPECT_TRUE(HostName::parse("r3---sn-x.example.org"));
  EXPECT_TRUE(HostName::parse("a-.example.org"));
}

TEST(HostName, IsNeverAnAddressOrANumericSpelling) {
  for (const auto* text : {"127.0.0.1", "127.1", "0x7f.1", "2130706433", "017700000001",
                           "0x7f000001", "0x", "1.2.3.4.5", "a.example.0x1f", "a.1", "1.2.3.4."})
    EXPECT_FALSE(HostName::parse(text)) << text;
  EXPECT_TRUE(HostName::parse("4.3.2.1.in-addr.arpa"));
  EXPECT_TRUE(HostName::parse("0x7f.example"));
  EXPECT_TRUE(HostName::parse("1e100.net"));
}

TEST(HostName, HoldsToTheLengthsOfDns) {
  const std::string label(63, 'a');
  const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'b');
  EXPECT_EQ(HostName::parse(longest)->text().size(), 253U);
  EXPECT_TRUE(HostName::parse(longest + "."));
  EXPECT_FALSE(HostName::parse(longest + "b"));
  EXPECT_FALSE(HostName::parse(std::string(64, 'a') + ".example"));
}

TEST(HostName, NamesTheOffendingCharacter) {
  EXPECT_THAT(HostName::parse("a b.org").error().message, HasSubstr("' ' at position 2"));
  EXPECT_THAT(HostName::parse(std::string("a\0b.org", 7)).error().message,
              HasSubstr("'\\x00' at position 2"));
  EXPECT_THAT(HostName::parse("b\xc3\xbc.org").error().hint, HasSubstr("xn--"));
}

TEST(HostName, FromLabelsTakesNoDotOrNulForASeparator) {
  EXPECT_EQ(HostName::from_labels(views({"WWW", "example", "org"}))->text(), "www.example.org");
  EXPECT_FALSE(HostName::from_labels(views({"www.example", "org"})));
  EXPECT_FALSE(HostName::from_labels(views({std::string("www\0", 4), "org"})));
  EXPECT_FALSE(HostName::from_labels(views({"www", "", "org"})));
  EXPECT_FALSE(HostName::from_labels({}));
  EXPECT_FALSE(HostName::from_labels(views({"127", "0", "0", "1"})));
}

TEST(HostName, FromLabelsHoldsToTheLengthsOfDns) {
  std::vector<std::string> labels(3, std::string(63, 'a'));
  labels.push_back(std::string(61, 'b'));
  EXPECT_EQ(HostName::from_labels(views(labels))->text().size(), 253U);
  labels.back() += 'b';
  EXPECT_FALSE(HostName::from_labels(views(labels)));
  EXPECT_FALSE(HostName::from_labels(views(std::vector<std::string>(500, std::string(63, 'a')))));
  EXPECT_FALSE(HostName::from_labels(views({std::string(64, 'a'), "org"})));
}

TEST(HostName, ZonesEndAtLabelBoundaries) {
  const HostName zone = *HostName::parse("example.org");
  EXPECT_TRUE(HostName::parse("example.org")->in_zone(zone));
  EXPECT_TRUE(HostName::parse("a.b.example.org")->in_zone(zone));
  EXPECT_FALSE(HostName::parse("badexample.org")->in_zone(zone));
  EXPECT_FALSE(HostName::parse("org")->in_zone(zone));
}

TEST(NumericSpelling, IsWhatACLibraryReadsAsAnAddress) {
  for (const auto* text :
       {"1", "127.1", "1.2.3.4", "0x7f.1", "0X7F000001", "010.0.0.1", "256.1.1.1"})
    EXPECT_TRUE(is_numeric_spelling(text)) << text;
  for (const auto* text : {"", "a", "1.2.3.4.5", "1..2", "1.a", "0xg", "1.", "-1"})
    EXPECT_FALSE(is_numeric_spelling(text)) << text;
}

}  // namespace
}  // namespace sandbox::policy
