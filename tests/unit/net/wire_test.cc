#include "net/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>

#include "base/socket.h"

namespace sandbox::net {
namespace {

class StreamWireTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pair = socket_pair(SocketKind::kStream);
    ASSERT_TRUE(pair);
    peer_ = std::move(pair->second);
    ASSERT_TRUE(set_nonblocking(peer_.get(), true));
    wire_ = std::move(*make_stream_wire(std::move(pair->first)));
  }
  void put(const Bytes& bytes) {
    ASSERT_EQ(::write(peer_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  std::vector<Bytes> received() {
    std::vector<Bytes> out;
    status_ = wire_->receive([&](ByteView f) { out.emplace_back(f.begin(), f.end()); });
    return out;
  }
  // Everything the peer can read now.
  void drain(Bytes& into) {
    std::array<uint8_t, 65536> block;
    for (ssize_t n; (n = ::read(peer_.get(), block.data(), block.size())) > 0;)
      into.insert(into.end(), block.begin(), block.begin() + n);
  }
  static Bytes framed(const Bytes& frame) {
    ByteWriter w;
    w.be32(static_cast<uint32_t>(frame.size()));
    w.bytes(frame);
    return w.take();
  }

  Fd peer_;
  std::unique_ptr<Wire> wire_;
  Status status_;
};

TEST_F(StreamWireTest, OneReadYieldsManyFrames) {
  Bytes all;
  for (uint8_t i = 0; i < 100; ++i) {
    const Bytes f = framed(Bytes(i, i));
    all.insert(all.end(), f.begin(), f.end());
  }
  put(all);
  const auto frames = received();
  ASSERT_EQ(frames.size(), 100U);
  for (uint8_t i = 0; i < 100; ++i) EXPECT_EQ(frames[i], Bytes(i, i));
}

TEST_F(StreamWireTest, FramesSplitAtEveryByteArriveWhole) {
  const Bytes one = framed({1, 2, 3, 4, 5});
  for (const uint8_t& byte : one) {
    const bool last = &byte == &one.back();
    put({byte});
    const auto frames = received();
    EXPECT_EQ(frames.size(), last ? 1U : 0U);
  }
}

TEST_F(StreamWireTest, TheLargestFramePasses) {
  Bytes frame(kMaxFrame);
  std::iota(frame.begin(), frame.end(), uint8_t{0});
  put(framed(frame));
  const auto frames = received();
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_EQ(frames[0], frame);
}

TEST_F(StreamWireTest, AnImpossibleLengthEndsTheWire) {
  put({0x7F, 0xFF, 0xFF, 0xFF});
  (void)received();
  ASSERT_FALSE(status_);
  EXPECT_EQ(status_.error().code, Code::kProtocol);
}

TEST_F(StreamWireTest, EndOfFileEndsTheWire) {
  peer_.reset();
  (void)received();
  EXPECT_FALSE(status_);
}

// Fills the wire to the brim, with the peer not reading, then lets the peer read: every frame that
// was accepted arrives whole and in order, none that was refused does.
TEST_F(StreamWireTest, WhatWasAcceptedArrivesAndWhatWasRefusedDoesNot) {
  set_socket_buffers(wire_->fd(), 16 * 1024);
  Bytes expected;
  Bytes got;
  uint8_t tag = 0;
  size_t refused = 0;
  for (int round = 0; round < 400; ++round) {
    const size_t size = 1 + static_cast<size_t>(round) * 37 % 9000;
    const auto room = wire_->begin_frame(size);
    if (room.empty()) {
      ++refused;
      drain(got);
      ASSERT_TRUE(wire_->flush());
      continue;
    }
    std::fill(room.begin(), room.end(), ++tag);
    wire_->commit_frame();
    const Bytes f = framed(Bytes(size, tag));
    expected.insert(expected.end(), f.begin(), f.end());
    ASSERT_TRUE(wire_->flush());
  }
  EXPECT_GT(refused, 0U);
  while (wire_->blocked()) {
    drain(got);
    ASSERT_TRUE(wire_->flush());
  }
  drain(got);
  EXPECT_EQ(got, expected);
}

TEST_F(StreamWireTest, AFrameThatWasBegunButNotCommittedLeavesNoTrace) {
  (void)wire_->begin_frame(50);
  const auto room = wire_->begin_frame(2);
  room[0] = room[1] = 7;
  wire_->commit_frame();
  ASSERT_TRUE(wire_->flush());
  Bytes got;
  drain(got);
  EXPECT_EQ(got, framed({7, 7}));
}

}  // namespace
}  // namespace sandbox::net
