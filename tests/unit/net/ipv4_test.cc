#include "net/ipv4.h"

#include <gtest/gtest.h>

#include <numeric>

#include "unit/net/support.h"

namespace sandbox::net {
namespace {

using test::kGuestIp;
using test::kServerIp;

// The straightforward sum of RFC 1071, 16 bits at a time.
uint16_t reference_checksum(ByteView bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i < bytes.size(); i += 2)
    sum += static_cast<uint32_t>(bytes[i] << 8 | (i + 1 < bytes.size() ? bytes[i + 1] : 0));
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

TEST(Checksum, EqualsTheReferenceForEveryLengthAndAlignment) {
  Bytes bytes(200);
  uint32_t state = 7;
  for (auto& b : bytes) b = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  for (size_t start = 0; start < 8; ++start)
    for (size_t size = 0; size + start <= bytes.size(); ++size) {
      const ByteView view = ByteView(bytes).subspan(start, size);
      ASSERT_EQ(checksum_finish(checksum_add(0, view)), reference_checksum(view))
          << start << " " << size;
    }
}

TEST(Checksum, OfAllOnesDoesNotOverflow) {
  const Bytes bytes(65536, 0xFF);
  EXPECT_EQ(checksum_finish(checksum_add(0, bytes)), reference_checksum(bytes));
}

TEST(Ipv4Parse, ReadsBackWhatWasWritten) {
  const Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolUdp, Bytes{1, 2, 3});
  Ipv4Packet packet;
  ASSERT_EQ(parse_ipv4(bytes, packet), Ipv4Error::kNone);
  EXPECT_EQ(packet.source, kGuestIp);
  EXPECT_EQ(packet.destination, kServerIp);
  EXPECT_EQ(packet.protocol, kProtocolUdp);
  EXPECT_EQ(packet.ttl, 64);
  EXPECT_FALSE(packet.is_fragment());
  EXPECT_EQ(Bytes(packet.payload.begin(), packet.payload.end()), (Bytes{1, 2, 3}));
}

TEST(Ipv4Parse, CutsLinkPadding) {
  Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolUdp, Bytes{1, 2, 3});
  bytes.resize(46);
  Ipv4Packet packet;
  ASSERT_EQ(parse_ipv4(bytes, packet), Ipv4Error::kNone);
  EXPECT_EQ(packet.payload.size(), 3U);
}

struct BadHeader {
  const char* name;
  Ipv4Error error;
  size_t at;
  uint8_t value;
};

// Changes one byte and, unless the checksum itself is the case, repairs the checksum.
Bytes damaged(const BadHeader& c) {
  Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolTcp, Bytes(20));
  bytes[c.at] = c.value;
  if (c.error == Ipv4Error::kChecksum) return bytes;
  bytes[10] = bytes[11] = 0;
  const uint16_t sum = checksum_finish(checksum_add(0, ByteView(bytes).first(kIpv4Header)));
  bytes[10] = static_cast<uint8_t>(sum >> 8);
  bytes[11] = static_cast<uint8_t>(sum);
  return bytes;
}

TEST(Ipv4Parse, RefusesBadHeaders) {
  const BadHeader cases[] = {
      {"version 6", Ipv4Error::kVersion, 0, 0x65},
      {"header of four words", Ipv4Error::kLength, 0, 0x44},
      {"options", Ipv4Error::kOptions, 0, 0x46},
      {"total length beyond the bytes", Ipv4Error::kLength, 2, 1},
      {"total length below the header", Ipv4Error::kLength, 3, 19},
      {"checksum", Ipv4Error::kChecksum, 8, 63},
      {"time to live", Ipv4Error::kTtl, 8, 0},
  };
  for (const auto& c : cases) {
    Ipv4Packet packet;
    EXPECT_EQ(parse_ipv4(damaged(c), packet), c.error) << c.name;
  }
}

TEST(Ipv4Parse, RefusesEveryTruncationOfAHeader) {
  const Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolTcp, Bytes(20));
  for (size_t size = 0; size < bytes.size(); ++size) {
    Ipv4Packet packet;
    EXPECT_NE(parse_ipv4(ByteView(bytes).first(size), packet), Ipv4Error::kNone) << size;
  }
}

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
