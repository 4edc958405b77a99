#include "net/checksum.h"

#include <gtest/gtest.h>

#include <random>

#include "unit/net/tcp/packet.h"

namespace sandbox::net {
namespace {

using tcp::testing::plain_checksum;

Bytes random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

TEST(Checksum, AgreesWithTheDefinitionAtEveryLengthAndAlignment) {
  const Bytes bytes = random_bytes(200, 1);
  for (size_t from = 0; from < 9; ++from) {
    for (size_t size = 0; from + size <= bytes.size(); ++size) {
      const ByteView piece = ByteView(bytes).subspan(from, size);
      Checksum sum;
      sum.add(piece);
      ASSERT_EQ(sum.finish(), plain_checksum(piece)) << from << " " << size;
    }
  }
}

TEST(Checksum, PiecesOfAnyLengthAddUp) {
  const Bytes bytes = random_bytes(301, 2);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Bytes copy(bytes.size());
    Checksum sum;
    sum.add_copy(ByteView(bytes).first(cut), copy.data());
    sum.add_copy(ByteView(bytes).subspan(cut), copy.data() + cut);
    ASSERT_EQ(sum.finish(), plain_checksum(bytes)) << cut;
    ASSERT_EQ(copy, bytes);
  }
}

TEST(Checksum, LargePacketsOfOnesDoNotOverflow) {
  const Bytes ones(65535, 0xff);
  Checksum sum;
  sum.add(ones);
  EXPECT_EQ(sum.finish(), plain_checksum(ones));
}

}  // namespace
}  // namespace sandbox::net
