#include "net/reassembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "unit/net/support.h"

namespace sandbox::net {
namespace {

using test::kServerIp;

class ReassemblyTest : public testing::Test {
 protected:
  Reassembly::Result add(size_t offset, size_t size, bool more, uint16_t id = 1) {
    const Bytes part(data_.begin() + static_cast<long>(offset),
                     data_.begin() + static_cast<long>(offset + size));
    bytes_ = test::fragment(kServerIp, kProtocolUdp, part, {id, offset, more});
    Ipv4Packet packet;
    EXPECT_EQ(parse_ipv4(bytes_, packet), Ipv4Error::kNone);
    return reassembly_.add(packet, now_);
  }
  static Bytes pattern() {
    Bytes out(65536);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i * 31 + i / 251);
    return out;
  }
  bool is_prefix(const Reassembly::Result& result, size_t size) const {
    return result.packet.payload.size() == size &&
           std::equal(result.packet.payload.begin(), result.packet.payload.end(), data_.begin());
  }

  Bytes data_ = pattern();
  Bytes bytes_;
  Reassembly reassembly_;
  Instant now_;
};

TEST_F(ReassemblyTest, JoinsInAnyOrder) {
  struct Piece {
    size_t offset, size;
    bool more;
  };
  std::vector<Piece> pieces = {{0, 8, true}, {8, 16, true}, {24, 800, true}, {824, 3, false}};
  std::vector<int> order = {0, 1, 2, 3};
  uint16_t id = 1;
  do {
    for (size_t i = 0; i < order.size(); ++i) {
      const Piece& p = pieces[static_cast<size_t>(order[i])];
      const auto result = add(p.offset, p.size, p.more, id);
      if (i + 1 < order.size()) {
        ASSERT_EQ(result.outcome, Reassembly::Outcome::kWaiting);
      } else {
        ASSERT_EQ(result.outcome, Reassembly::Outcome::kComplete);
        ASSERT_TRUE(is_prefix(result, 827));
        ASSERT_FALSE(result.packet.is_fragment());
      }
    }
    ++id;
  } while (std::ranges::next_permutation(order).found);
  EXPECT_EQ(reassembly_.waiting(), 0U);
}

TEST_F(ReassemblyTest, TheQuotedWholeIsAValidPacket) {
  (void)add(0, 1400, true);
  const auto result = add(1400, 600, false);
  ASSERT_EQ(result.outcome, Reassembly::Outcome::kComplete);
  Ipv4Packet again;
  EXPECT_EQ(parse_ipv4(result.packet.whole, again), Ipv4Error::kNone);
}

TEST_F(ReassemblyTest, AnyOverlapDropsTheDatagramAndWhatFollows) {
  (void)add(0, 16, true);
  EXPECT_EQ(add(8, 16, true).outcome, Reassembly::Outcome::kOverlap);
  EXPECT_EQ(add(0, 16, true).outcome, Reassembly::Outcome::kOverlap);
  EXPECT_EQ(add(16, 16, false).outcome, Reassembly::Outcome::kOverlap);
}

TEST_F(ReassemblyTest, AnEqualCopyIsAnOverlapToo) {
  (void)add(0, 16, true);
  EXPECT_EQ(add(0, 16, true).outcome, Reassembly::Outcome::kOverlap);
}

TEST_F(ReassemblyTest, AFragmentBehindTheLastOneIsAnOverlap) {
  (void)add(16, 8, false);
  EXPECT_EQ(add(32, 8, true).outcome, Reassembly::Outcome::kOverlap);
  (void)add(32, 8, true, 2);
  EXPECT_EQ(add(16, 8, false, 2).outcome, Reassembly::Outcome::kOverlap);
}

TEST_F(ReassemblyTest, RefusesWhatCannotBeAPiece) {
  EXPECT_EQ(add(0, 0, true).outcome, Reassembly::Outcome::kInvalid);
  EXPECT_EQ(add(0, 7, true).outcome, Reassembly::Outcome::kInvalid);
  EXPECT_EQ(add(65528, 8, false).outcome, Reassembly::Outcome::kInvalid);  // beyond 65535 in all
  EXPECT_EQ(reassembly_.waiting(), 0U);
}

TEST_F(ReassemblyTest, TakesTheLargestDatagram) {
  (void)add(0, 65504, true);
  const auto result = add(65504, 11, false);
  ASSERT_EQ(result.outcome, Reassembly::Outcome::kComplete);
  EXPECT_TRUE(is_prefix(result, 65515));
}

TEST_F(ReassemblyTest, HoldsEightForFiveSeconds) {
  for (uint16_t id = 1; id <= 8; ++id)
    EXPECT_EQ(add(0, 8, true, id).outcome, Reassembly::Outcome::kWaiting);
  EXPECT_EQ(add(0, 8, true, 9).outcome, Reassembly::Outcome::kFull);
  now_ = now_ + Reassembly::kTimeout - 1ns;
  EXPECT_EQ(add(0, 8, true, 9).outcome, Reassembly::Outcome::kFull);
  now_ = now_ + 1ns;
  EXPECT_EQ(add(8, 8, false, 1).outcome, Reassembly::Outcome::kWaiting);  // its first part is gone
}

}  // namespace
}  // namespace sandbox::net
