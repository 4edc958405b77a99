// The parts the stack is built of: sequence numbers, ring, segment reader.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "net/tcp/ring.h"
#include "unit/net/tcp/packet.h"

namespace sandbox::tcp::testing {
namespace {

TEST(TcpSeq, OrderFollowsTheShorterWayRound) {
  const Seq low{5}, high{0xfffffff0};
  EXPECT_LT(high, low);
  EXPECT_EQ(low - high, 21);
  EXPECT_EQ(high + 21, low);
  EXPECT_EQ(later_of(low, high), low);
}

Bytes random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  return bytes;
}

TEST(TcpRing, BytesComeOutAsTheyWentInAcrossGrowthAndWrap) {
  Budget budget(1 << 20);
  Ring ring;
  ring.open(budget, 65536);
  std::mt19937 random(3);
  uint8_t in = 0, out = 0;
  for (int i = 0; i < 20000; ++i) {
    Bytes some(random() % 3000);
    for (uint8_t& b : some) b = in++;
    const size_t taken = ring.append(some);
    in = static_cast<uint8_t>(in - (some.size() - taken));
    const size_t n = std::min<size_t>(random() % 3100, ring.size());
    const ReadSpans view = ring.view(0, n);
    for (const ByteView piece : {view.first, view.second}) {
      for (const uint8_t b : piece) ASSERT_EQ(b, out++);
    }
    ring.consume(n);
    if (random() % 50 == 0) ring.shrink();
    ASSERT_EQ(budget.used(), ring.allocated());
  }
}

TEST(TcpRing, TakesNoMoreThanItsLimit) {
  Budget budget(1 << 20);
  Ring ring;
  ring.open(budget, 8192);
  EXPECT_EQ(ring.append(Bytes(10000)), 8192u);
  EXPECT_EQ(ring.free(), 0u);
  EXPECT_EQ(ring.append(Bytes(1)), 0u);
}

TEST(TcpRing, MemoryFollowsUse) {
  Budget budget(1 << 20);
  Ring ring;
  ring.open(budget, 1 << 16);
  EXPECT_EQ(ring.allocated(), 0u);
  ring.append(Bytes(1));
  EXPECT_EQ(ring.allocated(), kRingFloor);
  ring.append(Bytes(20000));
  EXPECT_EQ(ring.allocated(), 32768u);
  ring.consume(20000);
  ring.shrink();
  EXPECT_EQ(ring.allocated(), kRingFloor);
  ring.consume(1);
  ring.shrink();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(TcpRing, AnExhaustedBudgetGivesWhatItHas) {
  Budget budget(16384);
  Ring ring;
  ring.open(budget, 1 << 16);
  EXPECT_EQ(ring.append(Bytes(60000)), 16384u);
  EXPECT_TRUE(budget.scarce());
  Ring other;
  other.open(budget, 1 << 16);
  EXPECT_EQ(other.append(Bytes(60000)), kRingFloor);
}

TEST(TcpRing, FullAndOutOfBudgetItTakesNothingAndKeepsWhatItHas) {
  Budget budget(0);
  Ring ring;
  ring.open(budget, 1 << 16);
  const Bytes bytes = random_bytes(kRingFloor, 5);
  ASSERT_EQ(ring.append(bytes), kRingFloor);  // always allowed
  EXPECT_EQ(ring.append(bytes), 0u);
  EXPECT_EQ(ring.size(), kRingFloor);
  EXPECT_TRUE(std::ranges::equal(ring.view().first, bytes));
}

TEST(TcpSegment, ShortAndImpossibleHeadersAreRefused) {
  const Ipv4 a{1}, b{2};
  EXPECT_EQ(parse_segment(a, b, Bytes(19)).error, SegmentError::kShort);
  Bytes header(20);
  header[12] = 4 << 4;
  EXPECT_EQ(parse_segment(a, b, header).error, SegmentError::kBadOffset);
  header[12] = 6 << 4;
  EXPECT_EQ(parse_segment(a, b, header).error, SegmentError::kBadOffset);
  header[12] = 5 << 4;
  EXPECT_EQ(parse_segment(a, b, header).error, SegmentError::kBadChecksum);
}

TEST(TcpSegment, EveryFlippedBitIsNoticed) {
  GuestSegment s;
  s.tuple = {Ipv4{0x0a000001}, Ipv4{0x0a000002}, 1, 2};
  s.flags = flag::kAck;
  s.payload = random_bytes(33, 4);
  const Bytes good = build(s);
  ASSERT_FALSE(parse_segment(s.tuple.guest_ip, s.tuple.host_ip, good).error);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ASSERT_TRUE(parse_segment(s.tuple.guest_ip, s.tuple.host_ip, bad).error) << bit;
  }
}

// Read and written at every odd and even address, in every odd and even length, cut anywhere.
TEST(TcpSegment, AChecksumDoesNotDependOnTheAddress) {
  GuestSegment s;
  s.tuple = {Ipv4{0x0a000001}, Ipv4{0x0a000002}, 1, 2};
  s.flags = flag::kAck;
  for (size_t size = 0; size < 40; ++size) {
    s.payload = random_bytes(size, 9);
    const Bytes good = build(s);
    for (size_t at = 0; at < 8; ++at) {
      Bytes moved(at + good.size());
      std::ranges::copy(good, moved.begin() + static_cast<ptrdiff_t>(at));
      const ByteView view = ByteView(moved).subspan(at);
      ASSERT_FALSE(parse_segment(s.tuple.guest_ip, s.tuple.host_ip, view).error) << size << at;
      moved[at + good.size() - 1] ^= 1;
      ASSERT_TRUE(parse_segment(s.tuple.guest_ip, s.tuple.host_ip, view).error) << size << at;
    }
  }
}

TEST(TcpSegment, WhatIsWrittenIsRightAtEveryAddressAndCut) {
  const Tuple tuple{Ipv4{0x0a000001}, Ipv4{0x0a000002}, 1, 2};
  const Bytes payload = random_bytes(37, 11);
  for (size_t cut = 0; cut <= payload.size(); ++cut) {
    for (size_t at = 0; at < 8; ++at) {
      SegmentSpec spec;
      spec.flags = flag::kAck;
      spec.payload = {ByteView(payload).first(cut), ByteView(payload).subspan(cut)};
      Bytes room(at + packet_size(spec));
      write_segment(tuple, spec, std::span(room).subspan(at));
      const StackSegment read = read_packet(ByteView(room).subspan(at));
      ASSERT_TRUE(read.intact) << cut << " " << at;
      ASSERT_TRUE(std::ranges::equal(read.payload, payload));
    }
  }
}

}  // namespace
}  // namespace sandbox::tcp::testing
