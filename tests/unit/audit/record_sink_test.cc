#include "audit/record_sink.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/socket.h"

namespace sandbox::audit {
namespace {

Record allow(int i) {
  Record record;
  record.proto = "dns";
  record.verdict = Outcome::kAllow;
  record.names = {fmt::format("{}.example.org", i)};
  return record;
}

class RecordSinkTest : public ::testing::Test {
 protected:
  RecordSinkTest() : loop_(std::move(*EventLoop::create())) {
    auto [ours, theirs] = *socket_pair(SocketKind::kSeqPacket);
    recorder_ = std::move(theirs);
    EXPECT_TRUE(set_nonblocking(recorder_.get(), true));
    sink_ = std::move(*RecordSink::create(*loop_, std::move(ours)));
  }

  std::vector<Record> received() {
    std::vector<Record> out;
    std::string buffer(kMaxRecordBytes, '\0');
    for (;;) {
      const ssize_t got = ::recv(recorder_.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) return out;
      auto record = from_json({buffer.data(), static_cast<size_t>(got)});
      EXPECT_TRUE(record) << record.error().message;
      if (record) out.push_back(*record);
    }
  }

  std::unique_ptr<EventLoop> loop_;
  Fd recorder_;
  std::unique_ptr<RecordSink> sink_;
};

TEST_F(RecordSinkTest, SendsEachRecordAsOneMessage) {
  sink_->write(allow(1));
  sink_->write(allow(2));
  EXPECT_EQ(received(), (std::vector<Record>{allow(1), allow(2)}));
}

TEST_F(RecordSinkTest, KeepsOrderAndLosesNothingWhileTheRecorderIsBusy) {
  constexpr int kRecords =
      400;  // below the limit of a second, above what the socket holds by default
  for (int i = 0; i < kRecords; ++i) sink_->write(allow(i));
  std::vector<Record> all = received();
  while (all.size() < kRecords) {
    loop_->run_once(10ms);
    for (Record& record : received()) all.push_back(std::move(record));
  }
  for (int i = 0; i < kRecords; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], allow(i));
  EXPECT_EQ(sink_->lost(), 0U);
}

TEST_F(RecordSinkTest, CountsWhatTheQueueCannotHoldAndReportsIt) {
  Record large = allow(0);
  large.text = std::string(2000, 'x');
  large.names.assign(64, std::string(250, 'n'));
  large.names.front() = "same";
  uint64_t sent = 0;
  for (; sent < 450; ++sent) sink_->write(large);
  EXPECT_GT(sink_->lost(), 0U);
  uint64_t seen = 0;
  uint64_t reported = 0;
  while (seen + reported < sent) {
    for (const Record& record : received()) {
      if (record.kind == Kind::kLost) reported += record.count;
      if (record.kind == Kind::kDecision) ++seen;
    }
    loop_->run_once(10ms);
  }
  EXPECT_EQ(reported, sink_->lost());
  EXPECT_EQ(seen + reported, sent);
}

TEST_F(RecordSinkTest, FinishSendsWhatWaitsForItsWindow) {
  Record deny = allow(1);
  deny.verdict = Outcome::kDeny;
  for (int i = 0; i < 4; ++i) sink_->write(deny);
  EXPECT_EQ(received().size(), 1U);
  sink_->finish();
  const auto rest = received();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].count, 3U);
}

TEST_F(RecordSinkTest, BreaksWhenTheRecorderIsGone) {
  int told = 0;
  sink_->on_broken([&] { ++told; });
  recorder_.reset();
  loop_->run_once(10ms);
  EXPECT_TRUE(sink_->broken());
  sink_->write(allow(1));
  sink_->finish();
  loop_->run_once(0ms);
  EXPECT_EQ(told, 1);
}

TEST_F(RecordSinkTest, NoticesInsideAWriteAsWell) {
  int told = 0;
  sink_->on_broken([&] { ++told; });
  recorder_.reset();
  sink_->write(allow(1));
  EXPECT_TRUE(sink_->broken());
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace sandbox::audit
