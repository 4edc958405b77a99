#include "image/watched_program.h"

#include <gtest/gtest.h>
#include <sys/time.h>

#include <cerrno>
#include <csignal>

namespace sandbox {
namespace {

volatile std::sig_atomic_t interrupted = 0;

class UntilInterrupted final : public Progress {
 public:
  void step(std::string_view) override {}
  void advance(uint64_t, uint64_t) override {}
  [[nodiscard]] bool cancelled() const override { return interrupted != 0; }
};

WatchedProgram shell(const std::string& script) {
  WatchedProgram program;
  program.argv = {"sh", "-c", script};
  return program;
}

TEST(WatchedProgram, ItsLinesAreEscapedAndTheLastAreKept) {
  std::vector<std::string> lines;
  WatchedProgram program = shell("printf 'one\\rtwo\\n\\n' >&2; printf 'a\\033[2Jb'; exit 3");
  program.on_line = [&](std::string_view line) { lines.emplace_back(line); };
  NoProgress progress;
  const auto end = run_watched(program, progress);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->exit_code, 3);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "one");
  EXPECT_EQ(lines[1], "two");
  EXPECT_EQ(lines[2].find('\x1b'), std::string::npos);
  EXPECT_EQ(end->tail, lines);
}

TEST(WatchedProgram, OneThatIsMissingIsNamed) {
  NoProgress progress;
  WatchedProgram program;
  program.argv = {"no-such-program-here"};
  const auto end = run_watched(program, progress);
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code, Code::kUnavailable);
}

// The signal that cancels also interrupts the wait, and a tick may leave any errno behind.
TEST(WatchedProgram, ItEndsWhenTheUserInterrupts) {
  interrupted = 0;
  struct sigaction on_alarm {};
  on_alarm.sa_handler = [](int) { interrupted = 1; };
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGALRM, &on_alarm, &before), 0);
  WatchedProgram program = shell("exec sleep 5");
  program.on_tick = [] { errno = ENOENT; };
  const itimerval soon{{0, 0}, {0, 50'000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &soon, nullptr), 0);
  UntilInterrupted progress;
  const auto end = run_watched(program, progress);
  ::sigaction(SIGALRM, &before, nullptr);
  ASSERT_FALSE(end) << "it was waited for";
  EXPECT_EQ(end.error().code, Code::kCancelled);
}

}  // namespace
}  // namespace sandbox
