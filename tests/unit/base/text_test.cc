#include "base/text.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

TEST(EscapeTerminal, LeavesPlainAndUtf8TextAlone) {
  EXPECT_EQ(escape_terminal("héllo wörld ✓ 𝄞"), "héllo wörld ✓ 𝄞");
}

TEST(EscapeTerminal, EscapesEverythingThatCouldDriveATerminal) {
  const struct {
    std::string_view in;
    std::string_view out;
  } cases[] = {
      {"\x1b[31m", "\\x1b[31m"},
      {"a\rb", "a\\x0db"},
      {"a\tb\n", "a\\x09b\\x0a"},
      {"\x7f", "\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\xc2\\x9b31m"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xc0\xaf", "\\xc0\\xaf"},           // overlong slash
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // surrogate
      {"\xe2\x82", "\\xe2\\x82"},           // cut short
  };
  for (const auto& c : cases) EXPECT_EQ(escape_terminal(c.in), c.out);
}

TEST(EscapeTerminal, KeepsNewlinesOnRequestOnly) {
  EXPECT_EQ(escape_terminal("a\nb\x1b", true), "a\nb\\x1b");
}

TEST(Hex, RoundTripsAndRefusesOddOrForeignDigits) {
  const Bytes bytes = {0x00, 0x9f, 0xff};
  EXPECT_EQ(to_hex(bytes), "009fff");
  EXPECT_EQ(from_hex("009FfF"), bytes);
  EXPECT_FALSE(from_hex("0"));
  EXPECT_FALSE(from_hex("0g"));
}

TEST(ParseDecimal, TakesOnlyCanonicalUnsignedNumbers) {
  EXPECT_EQ(parse_decimal("0"), 0U);
  EXPECT_EQ(parse_decimal("18446744073709551615"), UINT64_MAX);
  for (const auto bad :
       {"", "00", "01", "-1", "+1", "1 ", " 1", "1.0", "18446744073709551616", "0x1"})
    EXPECT_FALSE(parse_decimal(bad)) << bad;
}

TEST(ParseSize, UnderstandsTheUsualSpellings) {
  const struct {
    std::string_view in;
    uint64_t out;
  } cases[] = {{"0", 0},
               {"123", 123},
               {"123b", 123},
               {"4k", 4096},
               {"512m", 536870912},
               {"4g", 4294967296},
               {"4GiB", 4294967296},
               {"4gb", 4294967296},
               {"1.5g", 1610612736},
               {"1t", 1099511627776}};
  for (const auto& c : cases) EXPECT_EQ(parse_size(c.in), c.out) << c.in;
  for (const auto bad :
       {"", "g", "4x", "4 g", "-4g", "1.5", "1..5g", "1.g", "99999999999999999999t"})
    EXPECT_FALSE(parse_size(bad)) << bad;
}

TEST(FormatSize, PicksAReadableUnit) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size(uint64_t{5} << 40), "5.0 TiB");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
}

TEST(Suggest, FindsACloseWordAndNothingFarAway) {
  const std::vector<std::string_view> known = {"run", "doctor", "policy check"};
  EXPECT_EQ(suggest("rnu", {"run"}).value_or("none"), "none");  // two edits of three letters
  EXPECT_EQ(suggest("docter", known).value_or("none"), "doctor");
  EXPECT_FALSE(suggest("zzzzzz", known));
}

}  // namespace
}  // namespace sandbox
