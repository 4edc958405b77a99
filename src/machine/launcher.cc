// sandbox-launcher: QEMU's cage.
//
//   sandbox-launcher CONTROL_FD PATH... -- QEMU ARGUMENT...
//
// Three processes come out of it, all but QEMU one small static program:
//
//   outer   child of the supervisor; waits for init and ends as QEMU ended (128+n for a signal)
//   init    pid 1 of a fresh pid namespace; holds the control socket and, until told, the right
//           to unmount
//   QEMU    pid 2, so that signals have their ordinary meaning for it (pid 1 ignores most)
//
// QEMU sees fresh user, mount, network, pid, IPC, UTS and cgroup namespaces: one interface (lo,
// down), uid 65534 that is the caller's own outside, no capability, no_new_privs, and a root that
// is a tmpfs with read-only binds of PATH... and a /proc of its own pid namespace. Root first
// becomes 65534 outside as well, so that who breaks out of QEMU is nobody in particular. What
// QEMU's own filter lets pass and QEMU has no use for is refused by one that it inherits.
//
// The control socket, from the supervisor's end:
//   write 'd'   init moves itself and QEMU to another, really empty root, unmounts the first one
//               with all that is in it, drops all rights and answers 'd'. QEMU keeps what it has
//               mapped
//   close       init exits, and with pid 1 the kernel kills all of the namespace
// Death of the supervisor is such a close; PDEATHSIG on outer and init is a second line (it does
// not reach outer when a supervisor without capabilities started as root). When init is killed
// QEMU dies in the kernel; when QEMU ends so does init, then outer.
//
// Binds are taken with open_tree(2) before the root changes, because a path below the place where
// the tmpfs goes is hidden by then. Errors go to stderr as "sandbox-launcher: what: why", exit
// status 125.

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <grp.h>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

constexpr int kFailed = 125;
constexpr unsigned kNobody = 65534;
constexpr int kMostBinds = 32;
constexpr const char* kEmptyRoot = "/empty";
constexpr rlim_t kMostThreads = 512;  // virtual CPUs (64), disk workers (64 at once), QEMU's own
constexpr rlim_t kMostFiles = 256;
constexpr rlim_t kLargestFile = rlim_t{80} << 30;  // a full 64 GiB disk as qcow2, with its tables

[[noreturn]] void die(const char* what) {
  const int number = errno;
  char line[512];
  const int n =
      std::snprintf(line, sizeof line, "sandbox-launcher: %s: %s\n", what, std::strerror(number));
  if (n > 0) (void)!::write(2, line, static_cast<size_t>(n));
  ::_exit(kFailed);
}

void check(bool fine, const char* what) {
  if (!fine) die(what);
}

struct Bind {
  const char* path;
  int tree;
  bool folder;
};

struct Plan {
  int control = -1;
  Bind binds[kMostBinds];
  int count = 0;
  char** qemu = nullptr;  // argv
};

Plan parse(int argc, char** argv) {
  Plan plan;
  errno = EINVAL;
  check(argc >= 4, "usage: sandbox-launcher CONTROL_FD PATH... -- QEMU ARGUMENT...");
  plan.control = std::atoi(argv[1]);
  int at = 2;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    check(plan.count < kMostBinds && argv[at][0] == '/', "a path to bind");
    plan.binds[plan.count++] = {argv[at], -1, false};
  }
  check(at + 1 < argc, "no program to run");
  plan.qemu = argv + at + 1;
  return plan;
}

bool is_device(const char* path) {
  return std::strncmp(path, "/dev/", 5) == 0;
}

void write_file(const char* path, const char* text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  check(fd >= 0, path);
  check(::write(fd, text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text)), path);
  ::close(fd);
}

// The group of /dev/kvm stays, where QEMU is to use it.
void become_nobody(const Plan& plan) {
  gid_t group = kNobody;
  for (int i = 0; i < plan.count; ++i) {
    struct stat st {};
    if (std::strcmp(plan.binds[i].path, "/dev/kvm") == 0 && ::stat("/dev/kvm", &st) == 0 &&
        st.st_gid != 0)
      group = st.st_gid;
  }
  if (::setresgid(group, group, group) != 0) {
    // Root of a user namespace without that id: outside it is an ordinary user already.
    if (errno == EINVAL) return;
    die("setresgid");
  }
  check(::setgroups(0, nullptr) == 0, "setgroups");
  check(::setresuid(kNobody, kNobody, kNobody) == 0, "setresuid");
  // A change of identity cleared both.
  check(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
  check(::prctl(PR_SET_DUMPABLE, 1) == 0, "prctl");
}

void enter_namespaces() {
  const unsigned uid = ::geteuid();
  const unsigned gid = ::getegid();
  check(::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC |
                  CLONE_NEWUTS | CLONE_NEWCGROUP) == 0,
        "unshare");
  char map[64];
  std::snprintf(map, sizeof map, "%u %u 1", kNobody, uid);
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", map);
  std::snprintf(map, sizeof map, "%u %u 1", kNobody, gid);
  write_file("/proc/self/gid_map", map);
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) check(errno == EINTR, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void take_trees(Plan& plan) {
  for (int i = 0; i < plan.count; ++i) {
    Bind& bind = plan.binds[i];
    bind.tree =
        ::open_tree(AT_FDCWD, bind.path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    check(bind.tree >= 0, bind.path);
    mount_attr attributes{};
    attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
    if (is_device(bind.path))
      attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    else
      attributes.attr_set |= MOUNT_ATTR_NODEV;
    check(::mount_setattr(bind.tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes,
                          sizeof attributes) == 0,
          "mount_setattr");
    struct stat st {};
    check(::fstat(bind.tree, &st) == 0, "fstat");
    bind.folder = S_ISDIR(st.st_mode);
  }
}

// The host's own /proc is the fallback where a container's masks forbid a fresh one; both are gone
// before the guest runs.
void mount_proc(const char* target) {
  if (::mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0) return;
  check(::mount("/proc", target, nullptr, MS_BIND | MS_REC, nullptr) == 0, "mounting /proc");
}

void make_mount_point(const char* path, bool folder) {
  char partial[PATH_MAX];
  for (const char* slash = std::strchr(path + 1, '/'); slash != nullptr;
       slash = std::strchr(slash + 1, '/')) {
    const auto length = static_cast<size_t>(slash - path);
    check(length < sizeof partial, path);
    std::memcpy(partial, path, length);
    partial[length] = '\0';
    check(::mkdir(partial, 0755) == 0 || errno == EEXIST, partial);
  }
  if (folder) {
    check(::mkdir(path, 0755) == 0 || errno == EEXIST, path);
    return;
  }
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  check(fd >= 0, path);
  ::close(fd);
}

void change_root(Plan& plan) {
  check(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "making mounts private");
  take_trees(plan);
  check(::mount("none", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=128,mode=755") ==
            0,
        "mounting a tmpfs");
  check(::mkdir("/tmp/proc", 0755) == 0, "mkdir");
  mount_proc("/tmp/proc");
  check(::chdir("/tmp") == 0, "chdir");
  check(::syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
  check(::umount2(".", MNT_DETACH) == 0, "unmounting the host");
  check(::chdir("/") == 0, "chdir");
  for (int i = 0; i < plan.count; ++i) {
    const Bind& bind = plan.binds[i];
    make_mount_point(bind.path, bind.folder);
    check(::move_mount(bind.tree, "", AT_FDCWD, bind.path, MOVE_MOUNT_F_EMPTY_PATH) == 0,
          bind.path);
    ::close(bind.tree);
  }
  check(::mkdir(kEmptyRoot, 0755) == 0, "mkdir");
  check(::mount("none", kEmptyRoot, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
                "size=4k,nr_inodes=2,mode=755") == 0,
        "mounting a tmpfs");
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  check(::mount_setattr(AT_FDCWD, "/", 0, &read_only, sizeof read_only) == 0, "mount_setattr");
}

void drop_all_rights() {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    check(::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0, "dropping the bounding set");
  check(::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0,
        "clearing ambient capabilities");
  check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  check(::syscall(SYS_capset, &header, none) == 0, "capset");
}

// Large parts of the kernel that are no business of a machine's, and where holes have been: EPERM,
// so that QEMU falls back to its other ways (of io_uring: to ppoll). Another table of system calls
// (32-bit, x32) is death.
void forbid_kernel_parts() {
  const scmp_filter_ctx filter = ::seccomp_init(SCMP_ACT_ALLOW);
  check(filter != nullptr, "seccomp_init");
  for (const int call :
       {SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
        SCMP_SYS(perf_event_open), SCMP_SYS(bpf), SCMP_SYS(userfaultfd), SCMP_SYS(keyctl),
        SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv),
        SCMP_SYS(process_vm_writev), SCMP_SYS(open_by_handle_at), SCMP_SYS(unshare),
        SCMP_SYS(setns), SCMP_SYS(mount), SCMP_SYS(fsopen), SCMP_SYS(open_tree),
        SCMP_SYS(move_mount)}) {
    const int rc = ::seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0);
    errno = -rc;
    check(rc == 0, "seccomp_rule_add");
  }
  const int rc = ::seccomp_load(filter);
  errno = -rc;
  check(rc == 0, "seccomp_load");
  ::seccomp_release(filter);
}

void limit(__rlimit_resource resource, rlim_t most) {
  rlimit now{};
  check(::getrlimit(resource, &now) == 0, "getrlimit");
  if (now.rlim_max < most) most = now.rlim_max;
  const rlimit wanted{most, most};
  check(::setrlimit(resource, &wanted) == 0, "setrlimit");
}

[[noreturn]] void run_qemu(const Plan& plan) {
  ::setsid();
  check(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, kMostFiles);
  limit(RLIMIT_FSIZE, kLargestFile);
  limit(RLIMIT_NPROC, kMostThreads);
  drop_all_rights();
  forbid_kernel_parts();
  char path[] = "PATH=/usr/bin:/bin";
  char* environment[] = {path, nullptr};
  ::execve(plan.qemu[0], plan.qemu, environment);
  die(plan.qemu[0]);
}

void close_all_but(int keep) {
  if (keep > 0) ::syscall(SYS_close_range, 0U, static_cast<unsigned>(keep - 1), 0U);
  ::syscall(SYS_close_range, static_cast<unsigned>(keep + 1), ~0U, 0U);
}

// pivot_root also moves the root of every process that has the old one, QEMU's with it. One unmount
// instead of one per bind: each waits for an RCU grace period.
void detach() {
  const bool gone = ::chdir(kEmptyRoot) == 0 && ::syscall(SYS_pivot_root, ".", ".") == 0 &&
                    ::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0;
  if (!gone) ::_exit(kFailed);  // QEMU must not run on with the host's files in sight
  drop_all_rights();
}

[[noreturn]] void be_init(const Plan& plan, pid_t qemu) {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const int signals = ::signalfd(-1, &child, SFD_CLOEXEC);
  check(signals >= 0, "signalfd");
  pollfd watch[2] = {{plan.control, POLLIN, 0}, {signals, POLLIN, 0}};
  for (;;) {
    if (::poll(watch, 2, -1) < 0) continue;
    if (watch[1].revents != 0) {
      signalfd_siginfo info{};
      (void)!::read(signals, &info, sizeof info);
      int status = 0;
      for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
        if (ended == qemu)
          ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (watch[0].revents == 0) continue;
    char order = 0;
    const ssize_t n = ::read(plan.control, &order, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(128 + SIGKILL);
    if (order != 'd') continue;
    detach();
    (void)!::write(plan.control, "d", 1);
  }
}

[[noreturn]] void init_main(Plan& plan) {
  check(::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "prctl");
  change_root(plan);
  check(::fcntl(plan.control, F_SETFD, FD_CLOEXEC) == 0, "fcntl");
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  const pid_t qemu = ::fork();
  check(qemu >= 0, "fork");
  if (qemu == 0) run_qemu(plan);
  close_all_but(plan.control);
  be_init(plan, qemu);
}

}  // namespace

int main(int argc, char** argv) {
  Plan plan = parse(argc, argv);
  if (::geteuid() == 0) become_nobody(plan);
  enter_namespaces();
  const pid_t init = ::fork();
  check(init >= 0, "fork");
  if (init == 0) init_main(plan);
  // Descriptors held here would keep wires and locks alive beyond QEMU's end.
  ::syscall(SYS_close_range, 0U, ~0U, 0U);
  ::_exit(wait_for(init));
}
