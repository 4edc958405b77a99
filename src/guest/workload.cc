#include "guest/workload.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "guest/capabilities.h"

namespace sandbox::guest {
namespace {

using channel::Profile;
using Kind = LaunchReport::Kind;

std::string workload_group() {
  return std::string(kCgroups) + "/workload";
}

Status write_text(const std::string& path, std::string_view text) {
  ASSIGN(const Fd file, open_file(path, O_WRONLY));
  return write_all(file.get(), text);
}

// fork() with flags, which glibc does not have. Only for a process that came from fork() itself:
// there are no other threads in it that could hold a lock of malloc at this moment, as the file
// relay's could in sentry.
pid_t fork_with(unsigned long flags) {
  return static_cast<pid_t>(
      ::syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

// ---- The workload's pid 1
// ------------------------------------------------------------------------------------------------

Status mount_or_fail(const char* source, const char* target, const char* type,
                     unsigned long flags) {
  if (::mount(source, target, type, flags, nullptr) == 0) return {};
  return fail_errno(errno, fmt::format("mount {}", target));
}

// A view of something that stays readable and cannot be written through this path.
Status protect(const char* path) {
  TRY(mount_or_fail(path, path, nullptr, MS_BIND | MS_REC));
  return mount_or_fail(nullptr, path, nullptr,
                       MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

// Files that let root reach past its namespaces (kernel helpers, the kernel's memory) or the whole
// machine.
Status protect_proc() {
  TRY(mount_or_fail("/proc/sys/net", "/proc/sys/net", nullptr, MS_BIND));
  for (const char* path : {"/proc/sys", "/proc/irq", "/proc/bus", "/proc/sysrq-trigger"})
    if (::access(path, F_OK) == 0) TRY(protect(path));
  for (const char* path : {"/proc/kcore", "/proc/keys", "/proc/timer_list"})
    if (::access(path, F_OK) == 0) TRY(mount_or_fail("/dev/null", path, nullptr, MS_BIND));
  return {};
}

Status enter_root() {
  TRY(mount_or_fail(nullptr, "/", nullptr, MS_REC | MS_PRIVATE));
  if (::chdir(kNewRoot) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0)
    return fail_errno(errno, "enter the root disk");
  return {};
}

Status prepare_init(Profile profile) {
  TRY(write_text(workload_group() + "/cgroup.procs", "0"));
  if (::unshare(CLONE_NEWCGROUP) != 0) return fail_errno(errno, "make a cgroup namespace");
  TRY(enter_root());
  constexpr unsigned long kQuiet = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  TRY(mount_or_fail("proc", "/proc", "proc", kQuiet));
  const bool privileged = profile == Profile::kPrivileged;
  TRY(mount_or_fail("cgroup2", "/sys/fs/cgroup", "cgroup2", kQuiet | (privileged ? 0 : MS_RDONLY)));
  if (!privileged) TRY(protect_proc());
  (void)::prctl(PR_SET_NAME, "workload-init");
  TRY(limit_bounding_set(0));
  return set_capabilities(0);
}

[[noreturn]] void reap_for_ever() {
  // Child ends are collected by sigwait, so that none is missed between a look and a sleep.
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  while (true) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    int signal = 0;
    (void)::sigwait(&children, &signal);
  }
}

void close_from(unsigned first) {
  (void)::syscall(SYS_close_range, first, ~0U, 0U);
}

struct InitReport {
  int32_t pid = 0;         // from the helper that made it
  char trouble[252] = {};  // from itself, only when it failed
};

void report_trouble(int pipe, std::string_view text) {
  InitReport message;
  text.copy(message.trouble, sizeof message.trouble - 1);
  (void)!::write(pipe, &message, sizeof message);
}

[[noreturn]] void run_init(Profile profile, int pipe) {
  if (const Status prepared = prepare_init(profile); !prepared) {
    report_trouble(pipe, prepared.error().message);
    ::_exit(1);
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  close_from(3);  // the pipe too: that it closes without trouble says that all is well
  ::setsid();
  reap_for_ever();
}

// Makes pid 1 of the new namespaces as a child of sentry (CLONE_PARENT).
[[noreturn]] void run_init_helper(Profile profile, int pipe) {
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS) != 0) {
    report_trouble(pipe, errno_error(errno, "make the workload's namespaces").message);
    ::_exit(1);
  }
  InitReport message;
  message.pid = fork_with(CLONE_PARENT);
  if (message.pid == 0) run_init(profile, pipe);
  (void)!::write(pipe, &message, sizeof message);
  ::_exit(0);
}

// ---- The entrant and the command
// -----------------------------------------------------------------------------------------

void report(int pipe, Kind kind, int value) {
  const LaunchReport message{kind, value};
  (void)!::write(pipe, &message, sizeof message);
}

[[noreturn]] void give_up(int pipe, Kind kind) {
  report(pipe, kind, errno);
  ::_exit(127);
}

constexpr int kReportFd = 3;

// Everything is ready in memory; only system calls from here on.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> env;
  std::vector<gid_t> groups;
  CapabilitySet capabilities = 0;
  bool no_new_privileges = false;
};

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const std::string& text : strings) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) (void)::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// As execvp(3) does it: a candidate that may not be run is remembered while the search goes on.
void exec_first(const Launch& launch, const Prepared& prepared) {
  int worst = ENOENT;
  for (const std::string& path : launch.candidates) {
    ::execve(path.c_str(), prepared.argv.data(), prepared.env.data());
    if (errno == EACCES)
      worst = EACCES;
    else if (errno != ENOENT && errno != ENOTDIR)
      return;
  }
  errno = worst;
}

[[noreturn]] void run_command(const Launch& launch, const Prepared& prepared) {
  ::setsid();
  if (launch.tty && ::ioctl(0, TIOCSCTTY, 0) != 0) give_up(kReportFd, Kind::kEnterFailed);
  if (::setgroups(prepared.groups.size(), prepared.groups.data()) != 0 ||
      ::setresgid(launch.identity.gid, launch.identity.gid, launch.identity.gid) != 0 ||
      ::setresuid(launch.identity.uid, launch.identity.uid, launch.identity.uid) != 0)
    give_up(kReportFd, Kind::kIdentityFailed);
  // Becoming another user has emptied the sets; root keeps what the profile grants.
  if (!set_capabilities(launch.identity.uid == 0 ? prepared.capabilities : 0))
    give_up(kReportFd, Kind::kIdentityFailed);
  if (prepared.no_new_privileges && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    give_up(kReportFd, Kind::kIdentityFailed);
  if (::chdir(launch.cwd.c_str()) != 0) give_up(kReportFd, Kind::kDirectoryFailed);
  reset_signals();
  ::umask(022);
  exec_first(launch, prepared);
  give_up(kReportFd, Kind::kExecFailed);
}

void take_streams(const Launch& launch, int pipe) {
  // Away from 0..3 first, so that no dup2 overwrites a descriptor still needed.
  int high[4] = {launch.stdio[0], launch.stdio[1], launch.stdio[2], pipe};
  for (int& fd : high) fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 10);
  for (int fd = 0; fd < 3; ++fd) ::dup2(high[fd], fd);
  ::dup3(high[3], kReportFd, O_CLOEXEC);
  close_from(kReportFd + 1);
}

Result<pid_t> read_init_reports(std::string_view reports) {
  pid_t pid = -1;
  for (; reports.size() >= sizeof(InitReport); reports.remove_prefix(sizeof(InitReport))) {
    InitReport message;
    std::memcpy(&message, reports.data(), sizeof message);
    if (message.trouble[0] != 0)
      return fail(Code::kIo, "starting the workload: {}", message.trouble);
    if (message.pid > 0) pid = message.pid;
  }
  if (pid < 0) return fail(Code::kIo, "starting the workload: its first process was not made");
  return pid;
}

void limit_resources() {
  // Many descriptors for those who ask, few enough at first that programs which walk them all stay
  // quick.
  const rlimit descriptors{65536, 1048576};
  (void)::setrlimit(RLIMIT_NOFILE, &descriptors);
  const rlimit cores{0, RLIM_INFINITY};
  (void)::setrlimit(RLIMIT_CORE, &cores);
}

}  // namespace

// ---- Cgroups of commands
// -------------------------------------------------------------------------------------------------

Result<CommandGroup> CommandGroup::create(uint32_t stream) {
  std::string path = fmt::format("{}/exec-{}", workload_group(), stream);
  if (::mkdir(path.c_str(), 0755) != 0) return fail_errno(errno, "make a cgroup");
  return CommandGroup(std::move(path));
}

void CommandGroup::kill() const {
  if (const Status killed = write_text(path_ + "/cgroup.kill", "1"); !killed)
    log::line(killed.error().message);
}

void CommandGroup::terminate() const {
  const auto processes = read_file(path_ + "/cgroup.procs");
  if (!processes) return;
  for (const std::string_view line : split(*processes, '\n')) {
    const auto pid = parse_decimal(line);
    if (pid && *pid > 1) (void)::kill(static_cast<pid_t>(*pid), SIGTERM);
  }
}

bool CommandGroup::populated() const {
  const auto events = read_file(path_ + "/cgroup.events");
  return events && events->find("populated 1") != std::string::npos;
}

bool CommandGroup::remove() const {
  return ::rmdir(path_.c_str()) == 0 || errno == ENOENT;
}

// ---- Workload
// ------------------------------------------------------------------------------------------------------------

Result<Workload> Workload::create(Profile profile) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd read_end(ready[0]);
  Fd write_end(ready[1]);
  const pid_t helper = ::fork();
  if (helper < 0) return fail_errno(errno, "start the workload");
  if (helper == 0) run_init_helper(profile, write_end.get());
  write_end.reset();
  (void)::waitpid(helper, nullptr, 0);
  ASSIGN(const std::string reports, read_all(read_end.get(), 4 * sizeof(InitReport)));
  ASSIGN(const pid_t pid, read_init_reports(reports));

  Workload workload;
  workload.profile_ = profile;
  workload.init_ = pid;
  const auto space = [&](const char* name) {
    return open_file(fmt::format("/proc/{}/ns/{}", pid, name), O_RDONLY);
  };
  ASSIGN(workload.pid_namespace_, space("pid"));
  ASSIGN(workload.mount_namespace_, space("mnt"));
  ASSIGN(workload.uts_namespace_, space("uts"));
  ASSIGN(workload.cgroup_namespace_, space("cgroup"));
  return workload;
}

Result<Launched> Workload::launch(const Launch& launch, const CommandGroup& group) const {
  Prepared prepared;
  prepared.argv = pointers(launch.argv);
  prepared.env = pointers(launch.env);
  prepared.groups.assign(launch.identity.groups.begin(), launch.identity.groups.end());
  prepared.capabilities = workload_capabilities(profile_);
  prepared.no_new_privileges = profile_ == Profile::kHardened;
  ASSIGN(const Fd members, open_file(group.path() + "/cgroup.procs", O_WRONLY));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  TRY(set_nonblocking(read_end.get(), true));

  const pid_t entrant = ::fork();
  if (entrant < 0) return fail_errno(errno, "start a process");
  if (entrant != 0) return Launched{entrant, std::move(read_end)};

  const int pipe = write_end.get();
  const auto own_score = open_file("/proc/self/oom_score_adj", O_WRONLY);  // inherited: -1000
  if (!own_score || !write_all(own_score->get(), "0") || !write_all(members.get(), "0") ||
      ::setns(mount_namespace_.get(), CLONE_NEWNS) != 0 ||
      ::setns(uts_namespace_.get(), CLONE_NEWUTS) != 0 ||
      ::setns(cgroup_namespace_.get(), CLONE_NEWCGROUP) != 0 ||
      ::setns(pid_namespace_.get(), CLONE_NEWPID) != 0)
    give_up(pipe, Kind::kEnterFailed);
  take_streams(launch, pipe);
  limit_resources();
  constexpr CapabilitySet kToBecomeUser = CapabilitySet{1} << CAP_SETGID | CapabilitySet{1}
                                                                               << CAP_SETUID;
  if (!limit_bounding_set(prepared.capabilities) ||
      !set_capabilities(prepared.capabilities | kToBecomeUser))
    give_up(kReportFd, Kind::kEnterFailed);
  const pid_t command = fork_with(CLONE_PARENT);
  if (command < 0) give_up(kReportFd, Kind::kEnterFailed);
  if (command == 0) run_command(launch, prepared);
  report(kReportFd, Kind::kPid, command);
  ::_exit(0);
}

void Workload::kill_all() const {
  if (const Status killed = write_text(workload_group() + "/cgroup.kill", "1"); !killed)
    log::line(killed.error().message);
}

}  // namespace sandbox::guest
