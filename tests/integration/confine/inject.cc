// Preloaded into the programs as they are shipped, so that what is proved holds for those and not
// for a likeness. Nothing of the program is changed but the moment at which it confines itself:
//
//   at its first step      one process is forked per probe. It goes on into the program's own
//                          confinement, and makes its attempt where that has returned
//   (then, the control)    one more is forked per probe, which makes the same attempt at once
//   after both             the program goes on as if nothing had been
//
// The first step is PR_SET_DUMPABLE (or, where a program moves to a root of its own, the unshare of
// that) and the last one seccomp_load; QEMU, which is confined by its cage before it begins, has
// seccomp_load alone.
//
//   CONFINE_PROBE_PROGRAM   the process name to act in: a supervisor hands its environment on
//   CONFINE_PROBE_REPORT    a descriptor, or a file, for lines of "confined|control PROBE OUTCOME",
//                           between "begun" and "end"
//   CONFINE_PROBE_CONFINED_DIR  the name that CONFINE_PROBE_DIR has in a root of the program's own
//   CONFINE_PROBE_CONTROL_ALONE  when set, no confined attempts
//   CONFINE_PROBE_AWAIT     a descriptor; probes wait for it to end before they make their attempt

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "integration/confine/probes.h"

namespace {

using sandbox::probe::kExecuted;
using sandbox::probe::Probe;

constexpr unsigned kPatience = 20;  // seconds, then an attempt that hangs is ended
constexpr int kReported = 99;       // exit status of a probe that has written its line

const Probe* mine = nullptr;  // in a forked process: the attempt to make
int report_fd = -1;
bool begun = false;

bool is_number(const char* text) {
  return *text != '\0' && std::strspn(text, "0123456789") == std::strlen(text);
}

bool is_wanted() {
  const char* program = ::getenv("CONFINE_PROBE_PROGRAM");
  return program != nullptr && std::strcmp(program, program_invocation_short_name) == 0;
}

// High, where no program closes or counts it.
bool open_report() {
  const char* where = ::getenv("CONFINE_PROBE_REPORT");
  if (where == nullptr) return false;
  const int fd = is_number(where) ? std::atoi(where)
                                  : ::open(where, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  report_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 500);
  if (report_fd < 0) report_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 100);
  return report_fd >= 0;
}

void say(const char* line) {
  (void)!::write(report_fd, line, std::strlen(line));
}

void report(const char* when, const char* name, const char* outcome) {
  char line[160];
  std::snprintf(line, sizeof line, "%s %s %s\n", when, name, outcome);
  say(line);
}

[[noreturn]] void make_attempt(const char* when) {
  if (const char* await = ::getenv("CONFINE_PROBE_AWAIT"); await != nullptr) {
    char byte = 0;
    while (::read(std::atoi(await), &byte, 1) > 0) {
    }
  }
  const int result = mine->attempt();
  report(when, mine->name, result == 0 ? "allowed" : ::strerrorname_np(result));
  ::_exit(kReported);
}

void wait_for(pid_t child, const char* when, const Probe& probe) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return report(when, probe.name, "lost");
  if (WIFSIGNALED(status)) return report(when, probe.name, ::sigabbrev_np(WTERMSIG(status)));
  if (WEXITSTATUS(status) == kExecuted) return report(when, probe.name, "allowed");
  // Whatever else ended it, it was not the probe.
  if (WEXITSTATUS(status) != kReported) report(when, probe.name, "unreported");
}

// Not fork(): what a program has registered for it may start threads in the child (QEMU's does),
// and a filter that kills one thread would leave the others.
pid_t fork_alone() {
  return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

// True in a forked process that is to go on into confinement.
bool fork_confined(const Probe& probe) {
  const pid_t child = fork_alone();
  if (child == 0) {
    ::alarm(kPatience);
    mine = &probe;
    if (const char* folder = ::getenv("CONFINE_PROBE_CONFINED_DIR"); folder != nullptr)
      ::setenv("CONFINE_PROBE_DIR", folder, 1);
    return true;
  }
  wait_for(child, "confined", probe);
  return false;
}

void fork_control(const Probe& probe) {
  const pid_t child = fork_alone();
  if (child == 0) {
    ::alarm(kPatience);
    mine = &probe;
    make_attempt("control");
  }
  wait_for(child, "control", probe);
}

// The confined attempt goes first: after the control a file may be gone or there already.
void begin() {
  if (begun || !is_wanted()) return;
  begun = true;
  if (!open_report()) return;
  sandbox::probe::prepare();
  say("begun\n");
  const bool control_alone = ::getenv("CONFINE_PROBE_CONTROL_ALONE") != nullptr;
  for (const Probe& probe : sandbox::probe::all()) {
    if (!control_alone && fork_confined(probe)) return;
    fork_control(probe);
  }
  say("end\n");
  ::close(report_fd);
}

}  // namespace

extern "C" {

// NOLINTNEXTLINE(cert-dcl50-cpp): its declaration in the C library
int prctl(int option, ...) {
  va_list list;
  va_start(list, option);
  unsigned long argument[4];
  for (unsigned long& one : argument) one = va_arg(list, unsigned long);
  va_end(list);
  if (option == PR_SET_DUMPABLE && argument[0] == 0) begin();
  return static_cast<int>(
      ::syscall(SYS_prctl, option, argument[0], argument[1], argument[2], argument[3]));
}

int unshare(int what) noexcept {
  begin();
  return static_cast<int>(::syscall(SYS_unshare, what));
}

int seccomp_load(void* filter) {
  begin();
  const auto real = reinterpret_cast<int (*)(void*)>(::dlsym(RTLD_NEXT, "seccomp_load"));
  const int result = real(filter);
  if (mine != nullptr) {
    if (result != 0) ::_exit(1);
    make_attempt("confined");
  }
  return result;
}
}
