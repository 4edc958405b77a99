// The supervisor between a guest and a client, both played by the test over real sockets on a loop
// that is stepped by hand.
#include "supervisor/guest_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/socket.h"

namespace sandbox {
namespace {

using channel::Frame;
using channel::FrameType;
using channel::Pipe;

// One end of a socket that speaks frames.
class Peer {
 public:
  explicit Peer(Fd fd) : fd_(std::move(fd)) { (void)set_nonblocking(fd_.get(), true); }
  void send(const Frame& frame) {
    Bytes bytes;
    channel::append_frame(bytes, frame);
    send_raw(bytes);
  }
  void send_raw(ByteView bytes) { (void)write_all(fd_.get(), as_text(bytes)); }
  void close() { fd_.reset(); }
  // The next frame that arrived, with its payload copied.
  struct Received {
    uint32_t stream;
    FrameType type;
    uint8_t flags;
    Bytes payload;
  };
  std::optional<Received> take() {
    uint8_t buffer[65536];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) decoder_.feed({buffer, static_cast<size_t>(n)});
    auto frame = decoder_.next();
    if (!frame || !*frame) return std::nullopt;
    const Frame& f = **frame;
    return Received{f.stream, f.type, f.flags, Bytes(f.payload.begin(), f.payload.end())};
  }

 private:
  Fd fd_;
  channel::FrameDecoder decoder_;
};

class GuestLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    link_.reset();  // some cases begin again; it must not outlive its loop
    loop_ = std::move(*EventLoop::create());
    auto guest = *socket_pair(SocketKind::kStream);
    auto client = *socket_pair(SocketKind::kStream);
    guest_ = std::make_unique<Peer>(std::move(guest.second));
    client_ = std::make_unique<Peer>(std::move(client.second));
    GuestLink::Events events;
    events.ready = [this](const channel::Ready&) { ready_ = true; };
    events.failed = [this](Error why) { failure_ = std::move(why); };
    events.client_gone = [this] { client_gone_ = true; };
    link_ = std::make_unique<GuestLink>(*loop_, std::move(guest.first), std::move(client.first),
                                        events);
    ASSERT_TRUE(link_->start());
  }
  void step() {
    for (int i = 0; i < 4; ++i) loop_->run_once(0ns);
  }
  void make_ready() {
    channel::ResumeRequest request;
    request.hostname = "h";
    request.nonce = 42;
    link_->resume(request);
    ASSERT_EQ(guest_->take()->type, FrameType::kResume);
    guest_->send({0, FrameType::kReady, 0, encode(channel::Ready{.nonce = 42, .warnings = {}})});
    step();
    ASSERT_TRUE(ready_);
  }
  void open_stream(uint32_t client_number) {
    channel::ExecRequest request;
    request.argv = {"true"};
    client_->send({client_number, FrameType::kExec, 0, encode(request)});
    step();
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Peer> guest_;
  std::unique_ptr<Peer> client_;
  std::unique_ptr<GuestLink> link_;
  bool ready_ = false;
  bool client_gone_ = false;
  std::optional<Error> failure_;
};

TEST_F(GuestLinkTest, ForwardsBothWaysUnderTheOtherSidesNumber) {
  make_ready();
  open_stream(7);
  const auto exec = guest_->take();
  ASSERT_TRUE(exec);
  EXPECT_EQ(exec->type, FrameType::kExec);
  EXPECT_EQ(exec->stream, 1U);
  guest_->send({1, FrameType::kStarted, 0, {}});
  guest_->send(channel::data_frame(1, Pipe::kStdout, as_bytes("hi")));
  guest_->send(
      {1, FrameType::kExit, 0, encode(channel::Exit{.code = 3, .signal = 0, .error = ""})});
  step();
  EXPECT_EQ(client_->take()->type, FrameType::kStarted);
  const auto data = client_->take();
  EXPECT_EQ(data->stream, 7U);
  EXPECT_EQ(as_text(data->payload), "hi");
  EXPECT_EQ(client_->take()->type, FrameType::kExit);
  EXPECT_FALSE(failure_);
}

TEST_F(GuestLinkTest, AWrongNonceFailsTheSandbox) {
  channel::ResumeRequest request;
  request.hostname = "h";
  request.nonce = 42;
  link_->resume(request);
  guest_->send({0, FrameType::kReady, 0, encode(channel::Ready{.nonce = 41, .warnings = {}})});
  step();
  EXPECT_TRUE(failure_);
  EXPECT_FALSE(ready_);
}

TEST_F(GuestLinkTest, WhatTheGuestMayNotSayFailsTheSandbox) {
  const Frame forbidden[] = {
      {9, FrameType::kStarted, 0, {}},   // a stream nobody opened
      {0, FrameType::kShutdown, 0, {}},  // the host's word
      channel::data_frame(1, Pipe::kStdout, as_bytes("early"),
                          false),  // before kStarted, nothing open
  };
  for (const Frame& frame : forbidden) {
    SetUp();
    failure_.reset();
    make_ready();
    guest_->send(frame);
    step();
    EXPECT_TRUE(failure_) << static_cast<int>(frame.type);
  }
}

TEST_F(GuestLinkTest, NoiseFromTheGuestFailsTheSandbox) {
  make_ready();
  guest_->send_raw(Bytes(64, 0xff));
  step();
  EXPECT_TRUE(failure_);
}

TEST_F(GuestLinkTest, MoreOutputThanItsCreditFailsTheSandbox) {
  make_ready();
  open_stream(1);
  guest_->send({1, FrameType::kStarted, 0, {}});
  const Bytes chunk(channel::kDataChunk, 'x');
  for (uint32_t sent = 0; sent < channel::kWindow; sent += channel::kDataChunk) {
    guest_->send(channel::data_frame(1, Pipe::kStdout, chunk));
    step();
  }
  EXPECT_FALSE(failure_);
  guest_->send(channel::data_frame(1, Pipe::kStdout, as_bytes("y")));
  step();
  EXPECT_TRUE(failure_);
}

TEST_F(GuestLinkTest, AClientThatBreaksTheProtocolIsLetGoAndTheGuestIsNot) {
  make_ready();
  client_->send({1, FrameType::kStarted, 0, {}});
  step();
  EXPECT_TRUE(client_gone_);
  EXPECT_FALSE(failure_);
}

TEST_F(GuestLinkTest, ALeavingClientResetsItsStreams) {
  make_ready();
  open_stream(1);
  ASSERT_EQ(guest_->take()->type, FrameType::kExec);
  client_->close();
  step();
  EXPECT_TRUE(client_gone_);
  const auto reset = guest_->take();
  ASSERT_TRUE(reset);
  EXPECT_EQ(reset->type, FrameType::kReset);
}

TEST_F(GuestLinkTest, TheClientLearnsWhyASandboxFailed) {
  link_->report(Error{Code::kInternal, "it broke", "do this"});
  const auto frame = client_->take();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->stream, 0U);
  EXPECT_EQ(channel::decode_error(frame->payload)->text, "it broke\ndo this");
}

}  // namespace
}  // namespace sandbox
