#include "image/watched_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"

namespace sandbox {

namespace {

constexpr int kTickMs = 200;
constexpr size_t kTailLines = 12;
constexpr size_t kMaxLine = 4096;

class LineReader {
 public:
  LineReader(const WatchedProgram& program, WatchedEnd& end) : program_(program), end_(end) {}

  void feed(std::string_view bytes) {
    for (const char c : bytes) {
      if (c != '\n' && c != '\r' && line_.size() < kMaxLine) {
        line_.push_back(c);
      } else {
        flush();
      }
    }
  }
  void flush() {
    if (line_.empty()) return;
    const std::string shown = escape_terminal(line_);
    line_.clear();
    program_.on_line(shown);
    end_.tail.push_back(shown);
    if (end_.tail.size() > kTailLines) end_.tail.erase(end_.tail.begin());
  }

 private:
  const WatchedProgram& program_;
  WatchedEnd& end_;
  std::string line_;
};

int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The child leads its own session, so its group is everything it started that did not leave on
// purpose.
void end_group(const Child& child, Duration grace) {
  ::kill(-child.pid, SIGTERM);
  pollfd ended{child.pidfd.get(), POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count();
  (void)::poll(&ended, 1, static_cast<int>(ms));
  ::kill(-child.pid, SIGKILL);
  (void)wait_for(child.pid);
}

}  // namespace

Result<WatchedEnd> run_watched(const WatchedProgram& program, Progress& progress) {
  SpawnSpec spec;
  spec.argv = program.argv;
  if (spec.argv[0].find('/') == std::string::npos) {
    const auto path = find_in_path(spec.argv[0]);
    if (!path) return fail(Code::kUnavailable, "{} is not installed", spec.argv[0]);
    spec.argv[0] = *path;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  Fd output(ends[0]);
  Fd input(ends[1]);
  spec.fds = {{input.get(), 2}, {program.stdout_fd >= 0 ? program.stdout_fd : input.get(), 1}};
  ASSIGN(const Child child, spawn(spec));
  input.reset();
  WatchedEnd end;
  LineReader lines(program, end);
  // The output may stay open in a grandchild after the program ended, and the other way round: both
  // count.
  bool exited = false;
  while (!exited || output.valid()) {
    if (progress.cancelled()) {
      end_group(child, program.grace);
      return fail(Code::kCancelled, "cancelled");
    }
    pollfd fds[2] = {{output.get(), POLLIN, 0}, {exited ? -1 : child.pidfd.get(), POLLIN, 0}};
    const int ready = ::poll(fds, 2, kTickMs);
    if (ready < 0 && errno != EINTR) break;
    program.on_tick();
    if (fds[1].revents != 0) exited = true;
    if (fds[0].revents != 0) {
      char buffer[16384];
      const ssize_t n = ::read(output.get(), buffer, sizeof buffer);
      if (n > 0) lines.feed({buffer, static_cast<size_t>(n)});
      if (n == 0 || (n < 0 && errno != EINTR)) output.reset();
    } else if (exited && ready <= 0) {
      break;  // a daemon it left behind holds the pipe
    }
  }
  lines.flush();
  end.exit_code = wait_for(child.pid);
  return end;
}

}  // namespace sandbox
