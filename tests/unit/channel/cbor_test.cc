#include "channel/cbor.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"

namespace sandbox::channel {
namespace {

Bytes number_bytes(uint64_t value) {
  CborWriter out;
  out.number(value);
  return out.take();
}

// Appendix A of RFC 8949.
TEST(Cbor, WritesNumbersAsTheStandardShowsThem) {
  const std::vector<std::pair<uint64_t, const char*>> cases = {
      {0, "00"},
      {1, "01"},
      {10, "0a"},
      {23, "17"},
      {24, "1818"},
      {25, "1819"},
      {100, "1864"},
      {1000, "1903e8"},
      {1000000, "1a000f4240"},
      {1000000000000, "1b000000e8d4a51000"},
      {UINT64_MAX, "1bffffffffffffffff"},
  };
  for (const auto& [value, hex] : cases) {
    EXPECT_EQ(to_hex(number_bytes(value)), hex);
    const Bytes bytes = number_bytes(value);
    CborReader back(bytes);
    EXPECT_EQ(back.number(0, UINT64_MAX), value);
    EXPECT_TRUE(back.done());
  }
}

TEST(Cbor, ReadsBackWhatItWrites) {
  CborWriter out;
  out.map(2);
  out.number(1);
  out.array(2);
  out.text("a\xff");
  out.boolean(true);
  out.number(2);
  out.boolean(false);
  const Bytes bytes = out.take();
  CborReader in(bytes);
  EXPECT_EQ(in.map(), 2U);
  EXPECT_EQ(in.number(1, 1), 1U);
  EXPECT_EQ(in.array(), 2U);
  EXPECT_EQ(in.text(), "a\xff");
  EXPECT_TRUE(in.boolean());
  EXPECT_EQ(in.number(2, 2), 2U);
  EXPECT_FALSE(in.boolean());
  EXPECT_TRUE(in.done());
}

struct Refused {
  const char* why;
  const char* hex;
  void (*read)(CborReader&);
};

const auto kNumber = [](CborReader& in) { (void)in.number(0, UINT64_MAX); };
const auto kBytes = [](CborReader& in) { (void)in.bytes(); };

TEST(Cbor, RefusesWhatIsNotInTheSubset) {
  const std::vector<Refused> cases = {
      {"empty", "", kNumber},
      {"negative", "20", kNumber},
      {"longer than needed, 1 byte", "1817", kNumber},
      {"longer than needed, 2 bytes", "1900ff", kNumber},
      {"longer than needed, 4 bytes", "1a0000ffff", kNumber},
      {"longer than needed, 8 bytes", "1b00000000ffffffff", kNumber},
      {"reserved information", "1c", kNumber},
      {"indefinite bytes", "5f4100ff", kBytes},
      {"cut number", "19ff", kNumber},
      {"cut bytes", "4300", kBytes},
      {"length above everything", "5bffffffffffffffff", kBytes},
      {"text string", "6161", kBytes},
      {"array longer than the rest", "8300", [](CborReader& in) { (void)in.array(); }},
      {"array of 2^64-1", "9bffffffffffffffff", [](CborReader& in) { (void)in.array(); }},
      {"map longer than the rest", "a200", [](CborReader& in) { (void)in.map(); }},
      {"null for a boolean", "f6", [](CborReader& in) { (void)in.boolean(); }},
      {"below the range", "01", [](CborReader& in) { (void)in.number(2, 3); }},
      {"above the range", "04", [](CborReader& in) { (void)in.number(2, 3); }},
      {"zero byte in a C string", "4100", [](CborReader& in) { (void)in.c_text(); }},
  };
  for (const Refused& test : cases) {
    const Bytes bytes = *from_hex(test.hex);
    CborReader in(bytes);
    test.read(in);
    EXPECT_FALSE(in.ok()) << test.why;
  }
}

TEST(Cbor, StaysFailed) {
  const Bytes bytes = *from_hex("2001");
  CborReader in(bytes);
  EXPECT_EQ(in.number(0, 9), 0U);
  EXPECT_EQ(in.number(0, 9), 0U);
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace sandbox::channel
