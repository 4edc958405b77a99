#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace sandbox {

namespace {

// In the forked child: only async-signal-safe calls from here to exec.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> env;
  char** environment;
  std::vector<std::pair<int, int>> fds;
  const char* cwd;
  int report;
  pid_t parent;
};

[[noreturn]] void give_up(int report, int number) {
  (void)!::write(report, &number, sizeof number);
  ::_exit(127);
}

// Moves every source above all targets first, so that no target overwrites a source still needed.
int place_descriptors(std::vector<std::pair<int, int>>& fds, int& report) {
  int high = 64;
  for (const auto& [source, target] : fds) high = std::max({high, source + 1, target + 1});
  report = ::fcntl(report, F_DUPFD_CLOEXEC, high);
  if (report < 0) return errno;
  for (auto& [source, target] : fds) {
    source = ::fcntl(source, F_DUPFD_CLOEXEC, high);
    if (source < 0) return errno;
  }
  bool given[3] = {false, false, false};
  for (const auto& [source, target] : fds)
    if (target >= 0 && target < 3) given[target] = true;
  for (int i = 0; i < 3; ++i) {
    if (given[i]) continue;
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return errno;
    if (null == i) {
      if (::fcntl(null, F_SETFD, 0) < 0) return errno;
    } else {
      if (::dup2(null, i) < 0) return errno;
      ::close(null);
    }
  }
  for (const auto& [source, target] : fds)
    if (::dup2(source, target) < 0) return errno;
  return 0;
}

void close_others(const std::vector<std::pair<int, int>>& fds, int report) {
  int keep_to = 2;
  for (const auto& [source, target] : fds) keep_to = std::max(keep_to, target);
  for (int fd = 3; fd <= keep_to; ++fd) {
    const bool wanted =
        std::any_of(fds.begin(), fds.end(), [fd](const auto& pair) { return pair.second == fd; });
    if (!wanted && fd != report) ::close(fd);
  }
  ::syscall(SYS_close_range, static_cast<unsigned>(keep_to + 1), ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
}

[[noreturn]] void child_main(Prepared& p, bool die_with_parent, bool new_session) {
  if (new_session) ::setsid();
  if (die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != p.parent) ::_exit(127);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  int report = p.report;
  if (const int number = place_descriptors(p.fds, report); number != 0)
    give_up(report >= 0 ? report : p.report, number);
  close_others(p.fds, report);
  if (p.cwd != nullptr && ::chdir(p.cwd) < 0) give_up(report, errno);
  ::execve(p.argv[0], p.argv.data(), p.environment);
  give_up(report, errno);
}

}  // namespace

Result<Child> spawn(const SpawnSpec& spec) {
  if (spec.argv.empty()) return fail(Code::kInternal, "spawn without a program");
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  Fd read_end(pipe_fds[0]);
  Fd write_end(pipe_fds[1]);
  Prepared prepared{};
  for (const auto& word : spec.argv) prepared.argv.push_back(const_cast<char*>(word.c_str()));
  prepared.argv.push_back(nullptr);
  if (spec.env)
    for (const auto& word : *spec.env) prepared.env.push_back(const_cast<char*>(word.c_str()));
  prepared.env.push_back(nullptr);
  prepared.environment = spec.env ? prepared.env.data() : environ;
  prepared.fds = spec.fds;
  prepared.cwd = spec.cwd.empty() ? nullptr : spec.cwd.c_str();
  prepared.report = write_end.get();
  prepared.parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) child_main(prepared, spec.die_with_parent, spec.new_session);
  write_end.reset();
  int number = 0;
  ssize_t got = 0;
  do {
    got = ::read(read_end.get(), &number, sizeof number);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof number)) {
    ::waitpid(pid, nullptr, 0);
    return fail_errno(number, fmt::format("starting {}", spec.argv[0]));
  }
  Child child{pid, Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  if (!child.pidfd) return fail_errno(errno, "pidfd_open");
  return child;
}

int wait_for(const Child& child) {
  int status = -1;
  while (::waitpid(child.pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

void kill_now(const Fd& pidfd) {
  (void)::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);  // it may have ended
}

std::string describe_wait_status(int wait_status) {
  if (WIFEXITED(wait_status)) return fmt::format("exit {}", WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(wait_status),
                       ::strsignal(WTERMSIG(wait_status)));
  return fmt::format("wait status {:#x}", wait_status);
}

Result<Output> run_program(const std::vector<std::string>& argv, size_t limit) {
  int out[2];
  int err[2];
  if (::pipe2(out, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  Fd out_read(out[0]), out_write(out[1]);
  if (::pipe2(err, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  Fd err_read(err[0]), err_write(err[1]);
  SpawnSpec spec;
  spec.argv = argv;
  if (spec.argv.empty()) return fail(Code::kInternal, "run_program without a program");
  if (spec.argv[0].find('/') == std::string::npos) {
    const auto path = find_in_path(spec.argv[0]);
    if (!path) return fail(Code::kNotFound, "{}: command not found", spec.argv[0]);
    spec.argv[0] = *path;
  }
  spec.fds = {{out_write.get(), 1}, {err_write.get(), 2}};
  spec.new_session = false;
  ASSIGN(const Child child, spawn(spec));
  out_write.reset();
  err_write.reset();
  Output output;
  struct Stream {
    Fd* fd;
    std::string* text;
  };
  Stream streams[2] = {{&out_read, &output.out}, {&err_read, &output.err}};
  bool overflow = false;
  while (out_read.valid() || err_read.valid()) {
    pollfd fds[2] = {{out_read.get(), POLLIN, 0}, {err_read.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < 2; ++i) {
      if (fds[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t n = ::read(streams[i].fd->get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        streams[i].fd->reset();
        continue;
      }
      if (streams[i].text->size() + static_cast<size_t>(n) > limit) {
        // Both ends are closed too: a grandchild may hold the pipe and write for ever.
        overflow = true;
        ::kill(child.pid, SIGKILL);
        out_read.reset();
        err_read.reset();
        break;
      } else {
        streams[i].text->append(buffer, static_cast<size_t>(n));
      }
    }
  }
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (overflow) return fail(Code::kLimit, "{} printed more than {} bytes", argv[0], limit);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

std::optional<std::string> find_in_path(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "/usr/bin:/bin" : path;
  folders += ":/usr/sbin:/sbin:/usr/local/sbin";
  for (const std::string_view folder : split(folders, ':')) {
    if (folder.empty()) continue;
    const std::string candidate = fmt::format("{}/{}", folder, name);
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

Result<std::string> find_sibling(std::string_view name) {
  char self[PATH_MAX];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n > 0) {
    const std::string path(self, static_cast<size_t>(n));
    const std::string folder = path.substr(0, path.rfind('/'));
    for (const char* relative : {"", "/../libexec/sandbox"}) {
      const std::string candidate = fmt::format("{}{}/{}", folder, relative, name);
      if (::access(candidate.c_str(), R_OK) == 0) return candidate;
    }
  }
  if (auto found = find_in_path(name)) return *found;
  Error error{Code::kNotFound, fmt::format("{} is not beside this program or in PATH", name),
              "reinstall with: make install"};
  return fail(std::move(error));
}

}  // namespace sandbox
