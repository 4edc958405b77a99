#include "channel/stream.h"

#include <gtest/gtest.h>

namespace sandbox::channel {
namespace {

Bytes frame_bytes(const Frame& frame) {
  Bytes out;
  append_frame(out, frame);
  return out;
}

Frame plain(FrameType type) {
  return {1, type, 0, {}};
}

TEST(SendWindow, GivesWhatItHasAndTakesBackNoMoreThanIsOut) {
  SendWindow window;
  EXPECT_TRUE(window.take(kWindow));
  EXPECT_FALSE(window.take(1));
  EXPECT_TRUE(window.grant(10));
  EXPECT_EQ(window.available(), 10U);
  EXPECT_FALSE(window.grant(kWindow));
  EXPECT_TRUE(window.grant(kWindow - 10));
}

TEST(ReceiveWindow, CollectsGrantsToAQuarterAndLosesNone) {
  ReceiveWindow window;
  EXPECT_TRUE(window.received(kWindow));
  EXPECT_FALSE(window.received(1));
  uint64_t granted = 0;
  int grants = 0;
  for (uint32_t i = 0; i < kWindow / 1024; ++i) {
    const uint32_t grant = window.consumed(1024);
    granted += grant;
    grants += grant != 0 ? 1 : 0;
  }
  EXPECT_EQ(granted, kWindow);
  EXPECT_EQ(grants, 4);
  EXPECT_TRUE(window.received(kWindow));
}

TEST(ReceiveWindow, GrantsNothingForBytesThatNeverCame) {
  ReceiveWindow window;
  EXPECT_EQ(window.consumed(kWindow), 0U);
}

struct Step {
  bool host;
  Frame frame;
  bool legal;
};

void play(const char* name, const std::vector<Step>& steps) {
  StreamMonitor monitor;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Status status =
        steps[i].host ? monitor.from_host(steps[i].frame) : monitor.from_guest(steps[i].frame);
    EXPECT_EQ(status.has_value(), steps[i].legal) << name << ", step " << i;
  }
}

TEST(StreamMonitor, KnowsWhoMaySendWhatAndWhen) {
  const Bytes some(100, 'x');
  const Frame exec = plain(FrameType::kExec);
  const Frame started = plain(FrameType::kStarted);
  const Frame exit = plain(FrameType::kExit);
  const Frame reset = plain(FrameType::kReset);
  const Frame input = data_frame(1, Pipe::kStdin, some);
  const Frame input_end = data_frame(1, Pipe::kStdin, {}, true);
  const Frame output = data_frame(1, Pipe::kStdout, some);
  const Frame output_end = data_frame(1, Pipe::kStdout, {}, true);
  const OwnedFrame grant_in = credit_frame(1, Pipe::kStdin, 100);
  const OwnedFrame grant_out = credit_frame(1, Pipe::kStdout, 100);
  const OwnedFrame signal = signal_frame(1, 2);

  play("an ordinary life", {{true, exec, true},
                            {true, input, true},
                            {false, started, true},
                            {false, grant_in.view(), true},
                            {false, output, true},
                            {true, grant_out.view(), true},
                            {true, signal.view(), true},
                            {true, input_end, true},
                            {false, output_end, true},
                            {false, exit, true},
                            {true, signal.view(), true}});
  play("not started", {{true, exec, true}, {false, exit, true}, {false, exit, false}});
  play("not opened by the host", {{true, input, false}, {false, started, false}});
  play("opened twice", {{true, exec, true}, {true, exec, false}});
  play("started twice", {{true, exec, true}, {false, started, true}, {false, started, false}});
  play("output before it started", {{true, exec, true}, {false, output, false}});
  play("wrong directions", {{true, exec, true},
                            {false, started, true},
                            {true, output, false},
                            {false, input, false},
                            {true, grant_in.view(), false},
                            {false, grant_out.view(), false},
                            {false, signal.view(), false},
                            {true, started, false},
                            {true, exit, false}});
  play("credit that was not used", {{true, exec, true},
                                    {false, started, true},
                                    {true, grant_out.view(), false},
                                    {false, grant_in.view(), false}});
  play("bytes after the end", {{true, exec, true},
                               {false, started, true},
                               {true, input_end, true},
                               {true, input, false},
                               {false, output_end, true},
                               {false, output, false}});
  play("after a reset", {{true, exec, true},
                         {false, started, true},
                         {true, reset, true},
                         {false, output, true},
                         {true, signal.view(), false},
                         {false, exit, true}});
}

TEST(StreamMonitor, HoldsEachPipeToItsOwnWindow) {
  const Bytes half(kWindow / 2, 'x');
  const Bytes one(1, 'x');
  StreamMonitor monitor;
  ASSERT_TRUE(monitor.from_host(plain(FrameType::kExec)));
  ASSERT_TRUE(monitor.from_guest(plain(FrameType::kStarted)));
  for (const Pipe pipe : {Pipe::kStdout, Pipe::kStderr}) {
    EXPECT_TRUE(monitor.from_guest(data_frame(1, pipe, half)));
    EXPECT_TRUE(monitor.from_guest(data_frame(1, pipe, half)));
    EXPECT_FALSE(monitor.from_guest(data_frame(1, pipe, one)));
  }
  EXPECT_TRUE(monitor.from_host(credit_frame(1, Pipe::kStderr, 1).view()));
  EXPECT_FALSE(monitor.from_guest(data_frame(1, Pipe::kStdout, one)));
  EXPECT_TRUE(monitor.from_guest(data_frame(1, Pipe::kStderr, one)));
}

class ExecClientTest : public ::testing::Test {
 protected:
  ExecClient client_ = [] {
    ExecRequest request;
    request.argv = {"true"};
    return *ExecClient::open(request);
  }();

  std::vector<FrameType> sent() {
    FrameDecoder decoder;
    std::vector<FrameType> types;
    decoder.feed(client_.pending());
    client_.sent(client_.pending().size());
    while (true) {
      const auto frame = decoder.next();
      if (!frame || !*frame) return types;
      types.push_back((*frame)->type);
    }
  }
  void start() {
    ASSERT_TRUE(client_.feed(frame_bytes(plain(FrameType::kStarted))));
    (void)sent();
  }
};

TEST_F(ExecClientTest, OpensWithItsRequest) {
  EXPECT_EQ(sent(), std::vector{FrameType::kExec});
}

TEST_F(ExecClientTest, SendsNoMoreInputThanTheGuestHasRoomFor) {
  start();
  EXPECT_EQ(client_.stdin_room(), kWindow);
  client_.send_stdin(Bytes(kWindow, 'x'));
  EXPECT_EQ(client_.stdin_room(), 0U);
  EXPECT_EQ(sent().size(), kWindow / kDataChunk);
  ASSERT_TRUE(client_.feed(frame_bytes(credit_frame(1, Pipe::kStdin, 5).view())));
  EXPECT_EQ(client_.stdin_room(), 5U);
}

TEST_F(ExecClientTest, GivesCreditOnlyForWhatWasConsumed) {
  start();
  for (uint32_t i = 0; i < kWindow / kDataChunk; ++i) {
    const Bytes chunk(kDataChunk, 'x');
    const auto events = client_.feed(frame_bytes(data_frame(1, Pipe::kStdout, chunk)));
    ASSERT_TRUE(events);
    EXPECT_EQ(events->output.at(0).bytes.size(), kDataChunk);
  }
  EXPECT_TRUE(sent().empty());
  client_.consumed(Pipe::kStdout, kWindow);
  EXPECT_EQ(sent(), std::vector{FrameType::kCredit});
}

TEST_F(ExecClientTest, ReportsTheExitAndFallsSilent) {
  start();
  const auto events =
      client_.feed(frame_bytes({1, FrameType::kExit, 0, encode(Exit{143, 15, {}})}));
  ASSERT_TRUE(events);
  EXPECT_EQ(events->exit->code, 143);
  client_.close_stdin();
  client_.signal(2);
  client_.reset();
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(client_.stdin_room(), 0U);
}

TEST_F(ExecClientTest, RefusesFramesOfOtherStreams) {
  EXPECT_FALSE(client_.feed(frame_bytes({2, FrameType::kStarted, 0, {}})));
}

TEST_F(ExecClientTest, RefusesOutputBeyondItsCredit) {
  start();
  const Bytes all(kWindow, 'x');
  EXPECT_TRUE(client_.feed(frame_bytes(data_frame(1, Pipe::kStdout, all))));
  EXPECT_FALSE(client_.feed(frame_bytes(data_frame(1, Pipe::kStdout, as_bytes("x")))));
}

TEST(ExecClient, RefusesARequestThatFitsNoFrame) {
  ExecRequest request;
  request.argv = {std::string(kMaxPayload, 'x')};
  const auto client = ExecClient::open(request);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Code::kLimit);
}

}  // namespace
}  // namespace sandbox::channel
