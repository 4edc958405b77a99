// The recorder as the supervisor starts it: a process of its own, confined, with its real
// descriptors.

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <filesystem>

#include "audit/log.h"
#include "audit/log_file.h"
#include "base/process.h"
#include "base/socket.h"
#include "unit/audit/temporary_dir.h"

namespace sandbox::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RecorderProcess : public ::testing::Test {
 protected:
  void start(const std::string& config,
             std::vector<std::string> argv = {SANDBOX_BIN "/sandbox-recorder"}) {
    auto [control, control_child] = *socket_pair(SocketKind::kSeqPacket);
    auto [gateway, gateway_child] = *socket_pair(SocketKind::kSeqPacket);
    auto [files, files_child] = *socket_pair(SocketKind::kSeqPacket);
    const Fd memory = *memory_file("config", config);
    const Fd directory = *open_file(dir_.path(), O_RDONLY | O_DIRECTORY);
    SpawnSpec spec;
    spec.argv = std::move(argv);
    spec.fds = {{2, 2},
                {memory.get(), 3},
                {control_child.get(), 4},
                {directory.get(), 5},
                {gateway_child.get(), 10},
                {files_child.get(), 11}};
    auto child = spawn(spec);
    ASSERT_TRUE(child) << child.error().message;
    child_ = std::move(*child);
    control_ = std::move(control);
    gateway_ = std::move(gateway);
    files_ = std::move(files);
  }

  void start_ready(uint64_t limit = 1 << 20) {
    start(fmt::format(
        R"({{"sources":[{{"fd":10,"name":"gateway"}},{{"fd":11,"name":"files"}}],"limit_bytes":{}}})",
        limit));
    ASSERT_EQ(receive(control_), R"({"ready":true})");
  }

  static std::string receive(const Fd& fd) {
    pollfd wait{fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&wait, 1, 20000), 1) << "nothing came";
    char buffer[4096];
    const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : std::string();
  }

  static void send(const Fd& fd, std::string_view text) {
    ASSERT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  // Closes what is still open and waits for the end.
  std::string wait() {
    gateway_.reset();
    files_.reset();
    control_.reset();
    int status = 0;
    EXPECT_EQ(::waitpid(child_.pid, &status, 0), child_.pid);
    return describe_wait_status(status);
  }

  std::vector<LogEntry> entries() {
    std::vector<LogEntry> out;
    const auto summary = read_log(dir_.path(), {}, [&](const LogEntry& entry) {
      out.push_back(entry);
      return true;
    });
    EXPECT_TRUE(summary) << summary.error().message;
    return out;
  }

  test::TemporaryDir dir_;
  Child child_;
  Fd control_;
  Fd gateway_;
  Fd files_;
};

TEST_F(RecorderProcess, WritesWhatItIsSentAndEndsInOrder) {
  start_ready();
  const int64_t before = wall_now_ns();
  send(gateway_, R"({"proto":"dns","verdict":"deny","reason":"no-allow-rule","names":["x.net"]})");
  send(files_, R"({"proto":"file","path":"/etc/passwd"})");
  EXPECT_EQ(wait(), "exit 0");
  const auto all = entries();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].source == "gateway" ? all[1].source : all[0].source, "files");
  EXPECT_EQ(all[2].record.kind, Kind::kEnd);
  for (const LogEntry& entry : all) {
    EXPECT_GE(entry.time_ns, before);
    EXPECT_LE(entry.time_ns, wall_now_ns());
  }
}

TEST_F(RecorderProcess, SurvivesHostileMessages) {
  start_ready();
  const std::string nested = "{\"a\":" + std::string(20000, '[') + std::string(20000, ']') + "}";
  const std::string oversized = "{\"text\":\"" + std::string(100000, 'x') + "\"}";
  for (const std::string& text :
       {std::string("x"), std::string("\0\0\0", 3), nested, oversized, std::string(R"({"seq":1})"),
        std::string(R"({"names":{}})"), std::string("{\"text\":\"\xff\xfe\"}")})
    send(files_, text);
  send(gateway_, R"({"proto":"dns"})");
  send(control_, R"({"op":"stats"})");
  const std::string first = receive(control_);
  EXPECT_THAT(first, HasSubstr("\"malformed\""));
  EXPECT_EQ(wait(), "exit 0");
  uint64_t malformed = 0;
  uint64_t decisions = 0;
  for (const LogEntry& entry : entries()) {
    if (entry.record.kind == Kind::kMalformed) malformed += entry.record.count;
    if (entry.record.kind == Kind::kDecision) ++decisions;
  }
  EXPECT_EQ(malformed, 7U);
  EXPECT_EQ(decisions, 1U);
}

TEST_F(RecorderProcess, RotatesWhileConfined) {
  start_ready(20000);
  const std::string text =
      fmt::format(R"({{"proto":"dns","names":["{}"]}})", std::string(200, 'n'));
  for (int i = 0; i < 500; ++i) send(gateway_, text);
  EXPECT_EQ(wait(), "exit 0");
  EXPECT_LE(std::filesystem::file_size(dir_.file(kLogName)), 20000U);
  EXPECT_LE(std::filesystem::file_size(dir_.file(kOlderLogName)), 20000U);
  EXPECT_EQ(entries().back().record.kind, Kind::kEnd);
}

TEST_F(RecorderProcess, OneSourceEndingLeavesTheOthersAlone) {
  start_ready();
  gateway_.reset();
  send(files_, R"({"proto":"file"})");
  send(control_, R"({"op":"stats"})");
  EXPECT_THAT(receive(control_), HasSubstr("records"));
  EXPECT_EQ(wait(), "exit 0");
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(RecorderProcess, EndsWithItsSupervisorAndTakesWhatWasSent) {
  start_ready();
  send(gateway_, R"({"proto":"dns"})");
  control_.reset();
  int status = 0;
  ASSERT_EQ(::waitpid(child_.pid, &status, 0), child_.pid);
  EXPECT_EQ(describe_wait_status(status), "exit 0");
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(RecorderProcess, AFullDiskIsReportedAndEndsIt) {
  // A file size limit of 4 KiB stands in for the disk: writes beyond it fail.
  start(R"({"sources":[{"fd":10,"name":"gateway"},{"fd":11,"name":"files"}]})",
        {"/bin/bash", "-c", "ulimit -f 4; exec " SANDBOX_BIN "/sandbox-recorder"});
  ASSERT_EQ(receive(control_), R"({"ready":true})");
  const std::string text =
      fmt::format(R"({{"proto":"dns","names":["{}"]}})", std::string(1000, 'n'));
  for (int i = 0; i < 20; ++i)
    if (::send(gateway_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) break;
  const std::string said = receive(control_);
  EXPECT_THAT(said, HasSubstr("writing the log"));
  EXPECT_THAT(said, HasSubstr("hint"));
  int status = 0;
  ASSERT_EQ(::waitpid(child_.pid, &status, 0), child_.pid);
  EXPECT_EQ(describe_wait_status(status), "exit 1");
}

TEST_F(RecorderProcess, RefusesConfigurationItDoesNotKnow) {
  for (const auto* config :
       {"", "{}", "[]", R"({"sources":[]})", R"({"sources":[{"fd":10,"name":"a"}],"x":1})",
        R"({"sources":[{"fd":1,"name":"a"}]})", R"({"sources":[{"fd":10}]})",
        R"({"sources":[{"fd":10,"name":"a","more":1}]})"}) {
    start(config);
    EXPECT_THAT(receive(control_), StartsWith(R"({"error":)")) << config;
    EXPECT_EQ(wait(), "exit 1") << config;
  }
}

}  // namespace
}  // namespace sandbox::audit
