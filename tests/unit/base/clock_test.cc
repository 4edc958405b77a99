#include "base/clock.h"

#include <gtest/gtest.h>

#include <string_view>

namespace sandbox {
namespace {

TEST(Rfc3339, FormatsWithNineDigitsAndZ) {
  EXPECT_EQ(format_rfc3339(0), "1970-01-01T00:00:00.000000000Z");
  EXPECT_EQ(format_rfc3339(1'787'729'895'000'000'001), "2026-08-26T07:38:15.000000001Z");
}

TEST(Rfc3339, ParsesWhatItFormats) {
  for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{1'787'729'895'123'456'789}})
    EXPECT_EQ(parse_rfc3339(format_rfc3339(t)), t);
  EXPECT_EQ(parse_rfc3339("2026-08-26T07:38:15Z"), 1'787'729'895'000'000'000);
  EXPECT_EQ(parse_rfc3339("2026-08-26T07:38:15.5Z"), 1'787'729'895'500'000'000);
}

TEST(Rfc3339, RefusesEverythingElse) {
  for (const auto bad :
       {"", "2026-08-26", "2026-08-26 07:38:15Z", "2026-08-26T07:38:15", "2026-13-26T07:38:15Z",
        "2026-08-26T07:38:15.Z", "2026-08-26T07:38:15+02:00", "2026-08-26T25:38:15Z",
        "2026-08-26T07:38:15.1234567890Z"})
    EXPECT_EQ(parse_rfc3339(bad), -1) << bad;
}

}  // namespace
}  // namespace sandbox
