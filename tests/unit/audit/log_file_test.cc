#include "audit/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "audit/log.h"
#include "audit/recorder.h"
#include "unit/audit/temporary_dir.h"

namespace sandbox::audit {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTime = 1787000000000000000;  // some moment of 2026

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() : directory_(*open_file(dir_.path(), O_RDONLY | O_DIRECTORY)) {}

  LogFile open(uint64_t limit = 1 << 20) {
    auto log = LogFile::open(directory_.get(), limit);
    EXPECT_TRUE(log) << log.error().message;
    return std::move(*log);
  }

  std::vector<LogEntry> entries(const LogFilter& filter = {}) {
    std::vector<LogEntry> out;
    const auto summary = read_log(dir_.path(), filter, [&](const LogEntry& entry) {
      out.push_back(entry);
      return true;
    });
    EXPECT_TRUE(summary) << summary.error().message;
    if (summary) summary_ = *summary;
    return out;
  }

  void append_raw(const std::string& text) {
    const Fd fd = *open_file(dir_.file(kLogName), O_WRONLY | O_APPEND | O_CREAT);
    ASSERT_TRUE(write_all(fd.get(), text));
  }

  test::TemporaryDir dir_;
  Fd directory_;
  LogSummary summary_;
};

std::string message(int i) {
  return fmt::format(R"({{"proto":"dns","verdict":"deny","names":["{}.example"]}})", i);
}

TEST_F(LogFileTest, NumbersAndStampsWhatItIsGiven) {
  LogFile log = open();
  ASSERT_TRUE(log.append(message(1), kTime, "gateway"));
  ASSERT_TRUE(log.append(message(2), kTime + 1, "files"));
  ASSERT_TRUE(log.flush());
  const auto all = entries();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].seq, 1U);
  EXPECT_EQ(all[1].seq, 2U);
  EXPECT_EQ(all[1].source, "files");
  EXPECT_EQ(all[1].time_ns, kTime + 1);
  struct stat st {};
  ASSERT_EQ(::stat(dir_.file(kLogName).c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
}

TEST_F(LogFileTest, RefusedMessagesUseUpNoNumber) {
  LogFile log = open();
  EXPECT_EQ(log.append("rubbish", kTime, "gateway").error().code, Code::kProtocol);
  ASSERT_TRUE(log.append(message(1), kTime, "gateway"));
  ASSERT_TRUE(log.flush());
  EXPECT_EQ(entries().at(0).seq, 1U);
}

TEST_F(LogFileTest, UsesTwoLimitsOfDiskAndSaysWhatItGaveUp) {
  constexpr uint64_t kLimit = 10000;
  LogFile log = open(kLimit);
  constexpr int kRecords = 1000;
  for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(log.append(message(i), kTime, "gateway"));
  ASSERT_TRUE(log.flush());
  uint64_t lost = 0;
  uint64_t kept = 0;
  uint64_t expected_seq = 0;
  for (const LogEntry& entry : entries()) {
    EXPECT_TRUE(expected_seq == 0 || entry.seq == expected_seq) << entry.line;
    expected_seq = entry.seq + 1;
    ++kept;
  }
  struct stat current {};
  struct stat older {};
  ASSERT_EQ(::stat(dir_.file(kLogName).c_str(), &current), 0);
  ASSERT_EQ(::stat(dir_.file(kOlderLogName).c_str(), &older), 0);
  EXPECT_LE(static_cast<uint64_t>(current.st_size), kLimit);
  EXPECT_LE(static_cast<uint64_t>(older.st_size), kLimit);
  EXPECT_EQ(expected_seq, log.next_seq());
  // The two newest files each begin by telling what the rotation before them gave up: the file two
  // before.
  std::vector<LogEntry> losses = entries();
  std::erase_if(losses, [](const LogEntry& e) { return e.record.kind != Kind::kLost; });
  ASSERT_EQ(losses.size(), 2U);
  for (const LogEntry& loss : losses) lost = loss.record.count;
  EXPECT_GT(lost, 10U);
  EXPECT_LT(lost, kept);
  EXPECT_EQ(losses[0].source, "recorder");
}

TEST_F(LogFileTest, TheFirstRotationLosesNothing) {
  LogFile log = open(10000);
  int i = 0;
  while (!std::filesystem::exists(dir_.file(kOlderLogName)))
    ASSERT_TRUE(log.append(message(i++), kTime, "gateway"));
  ASSERT_TRUE(log.flush());
  const auto all = entries();
  EXPECT_EQ(all.size(), static_cast<size_t>(i));
  EXPECT_EQ(all.front().seq, 1U);
  for (const LogEntry& entry : all) EXPECT_EQ(entry.record.kind, Kind::kDecision);
}

TEST_F(LogFileTest, GoesOnWhereAnEarlierRunStopped) {
  for (int run = 0; run < 3; ++run) {
    LogFile log = open();
    ASSERT_TRUE(log.append(message(run), kTime, "gateway"));
    ASSERT_TRUE(log.flush());
  }
  const auto all = entries();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2].seq, 3U);
}

TEST_F(LogFileTest, GoesOnAfterARotationAsWell) {
  {
    LogFile log = open(10000);
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(log.append(message(i), kTime, "gateway"));
    ASSERT_TRUE(log.flush());
  }
  const uint64_t last = entries().back().seq;
  LogFile log = open(10000);
  EXPECT_EQ(log.next_seq(), last + 1);
}

TEST_F(LogFileTest, EndsTheHalfLineOfACrash) {
  {
    LogFile log = open();
    ASSERT_TRUE(log.append(message(1), kTime, "gateway"));
    ASSERT_TRUE(log.flush());
  }
  append_raw(R"({"seq":2,"time":"2026-)");
  entries();
  EXPECT_EQ(summary_.damaged, 1U);
  LogFile log = open();
  ASSERT_TRUE(log.append(message(3), kTime, "gateway"));
  ASSERT_TRUE(log.flush());
  const auto all = entries();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].record.names.front(), "3.example");
  EXPECT_EQ(summary_.damaged, 1U);
}

TEST_F(LogFileTest, FollowsNoLink) {
  ASSERT_EQ(::symlink("/etc/hostname", dir_.file(kLogName).c_str()), 0);
  EXPECT_FALSE(LogFile::open(directory_.get(), 1000));
}

TEST_F(LogFileTest, AWriteThatFailsIsAnErrorOfTheDisk) {
  ASSERT_EQ(::symlink("x", dir_.file("unused").c_str()), 0);
  const Fd full = *open_file("/dev/full", O_WRONLY);
  LogFile log = open();
  ASSERT_TRUE(log.append(message(1), kTime, "gateway"));
  // The descriptor of the log becomes one whose writes fail with ENOSPC.
  struct stat st {};
  ASSERT_EQ(::stat(dir_.file(kLogName).c_str(), &st), 0);
  for (int fd = 3; fd < 64; ++fd) {
    struct stat candidate {};
    if (::fstat(fd, &candidate) == 0 && candidate.st_ino == st.st_ino &&
        candidate.st_dev == st.st_dev) {
      ASSERT_EQ(::dup2(full.get(), fd), fd);
    }
  }
  const auto flushed = log.flush();
  ASSERT_FALSE(flushed);
  EXPECT_NE(flushed.error().code, Code::kProtocol);
  EXPECT_THAT(flushed.error().message, HasSubstr("writing the log"));
}

TEST_F(LogFileTest, ReaderPassesOverWhatIsNoRecord) {
  append_raw("\n\xff\xfe\n{}\n[1]\n" + std::string(2 * kMaxLineBytes, 'x') + "\n" +
             R"({"seq":9,"time":"2026-08-26T07:38:15Z","source":"a","proto":"dns"})" + "\n");
  const auto all = entries();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].seq, 9U);
  EXPECT_EQ(summary_.damaged, 5U);
}

TEST_F(LogFileTest, TailAndDeniedFilterTogether) {
  LogFile log = open();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(log.append(message(i), kTime, "gateway"));
    ASSERT_TRUE(log.append(R"({"proto":"tcp","verdict":"allow"})", kTime, "gateway"));
  }
  ASSERT_TRUE(log.flush());
  const auto some = entries({.denied_only = true, .tail = 3});
  ASSERT_EQ(some.size(), 3U);
  EXPECT_EQ(some[0].record.names.front(), "7.example");
  EXPECT_EQ(some[2].record.names.front(), "9.example");
  EXPECT_EQ(summary_.records, 3U);
}

TEST_F(LogFileTest, ReadingWithoutALogIsNotFound) {
  const auto summary = read_log(dir_.path(), {}, [](const LogEntry&) { return true; });
  ASSERT_FALSE(summary);
  EXPECT_EQ(summary.error().code, Code::kNotFound);
}

TEST_F(LogFileTest, ACallbackCanStop) {
  LogFile log = open();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(log.append(message(i), kTime, "gateway"));
  ASSERT_TRUE(log.flush());
  int seen = 0;
  ASSERT_TRUE(read_log(dir_.path(), {}, [&](const LogEntry&) { return ++seen < 4; }));
  EXPECT_EQ(seen, 4);
}

// The writer works from inside the callback, so the test needs no second thread and no sleep of its
// own.
TEST_F(LogFileTest, FollowingSeesEveryRecordAcrossRotations) {
  LogFile log = open(3000);
  Recorder recorder(std::move(log), {"gateway"});
  constexpr int kRecords = 200;
  int written = 0;
  const auto write_more = [&] {
    for (int i = 0; i < 7 && written < kRecords; ++i)
      ASSERT_TRUE(recorder.take(0, message(written++), kTime));
    ASSERT_TRUE(recorder.flush());
    if (written == kRecords) {
      ASSERT_TRUE(recorder.end(kTime));
    }
  };
  write_more();
  uint64_t last = 0;
  int decisions = 0;
  const auto summary = follow_log(
      dir_.path(), {},
      [&](const LogEntry& entry) {
        EXPECT_EQ(entry.seq, last + 1);
        last = entry.seq;
        if (entry.record.kind == Kind::kDecision && ++decisions % 7 == 0) write_more();
        return true;
      },
      [] { return true; });
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(decisions, kRecords);
  EXPECT_TRUE(summary->ended);
  EXPECT_EQ(summary->damaged, 0U);
}

TEST_F(LogFileTest, FollowingEndsWhenItIsNoLongerWanted) {
  const auto summary = follow_log(
      dir_.path(), {}, [](const LogEntry&) { return true; }, [] { return false; });
  ASSERT_TRUE(summary);
  EXPECT_FALSE(summary->ended);
}

TEST_F(LogFileTest, RecorderCountsWhatIsMalformedAndSaysSoOnce) {
  Recorder recorder(open(), {"gateway", "files"});
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(recorder.take(1, "rubbish", kTime));
  recorder.oversized(1);
  EXPECT_TRUE(recorder.has_report());
  ASSERT_TRUE(recorder.take(0, message(1), kTime));
  ASSERT_TRUE(recorder.report(kTime));
  EXPECT_FALSE(recorder.has_report());
  ASSERT_TRUE(recorder.end(kTime));
  const auto all = entries();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].record.kind, Kind::kMalformed);
  EXPECT_EQ(all[1].record.count, 1001U);
  EXPECT_EQ(all[1].source, "files");
  EXPECT_EQ(all[1].record.text, "not JSON");
  EXPECT_EQ(all[2].record.kind, Kind::kEnd);
  EXPECT_TRUE(summary_.ended);
}

}  // namespace
}  // namespace sandbox::audit
