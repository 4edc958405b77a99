#include "base/confine.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>

#ifdef SANDBOX_SANITIZED
#include <sanitizer/lsan_interface.h>
#endif

#include "base/fd.h"

namespace sandbox::confine {

namespace {

// Rights of Landlock ABI 1 to 3 by number: the packaged header is older than the kernels this runs
// on.
constexpr uint64_t kFsExecute = 1ULL << 0;
constexpr uint64_t kFsReadFile = 1ULL << 2;
constexpr uint64_t kFsReadDir = 1ULL << 3;
constexpr uint64_t kFsAbi1 = (1ULL << 13) - 1;
constexpr uint64_t kFsRefer = 1ULL << 13;     // ABI 2
constexpr uint64_t kFsTruncate = 1ULL << 14;  // ABI 3
constexpr uint64_t kFsWriteFile = 1ULL << 1;
constexpr uint64_t kNetBindConnect = 3;  // ABI 4

struct RulesetAttributes {  // struct landlock_ruleset_attr as of ABI 4
  uint64_t handled_access_fs;
  uint64_t handled_access_net;
};

uint64_t fs_rights(int abi) {
  uint64_t rights = kFsAbi1;
  if (abi >= 2) rights |= kFsRefer;
  if (abi >= 3) rights |= kFsTruncate;
  return rights;
}

Status add_path(int ruleset, const PathRight& right, int abi) {
  ASSIGN(const Fd fd, open_file(right.path, O_PATH));
  struct stat st {};
  if (::fstat(fd.get(), &st) < 0) return fail_errno(errno, "fstat");
  uint64_t access = right.writable ? fs_rights(abi) & ~kFsExecute : kFsReadFile | kFsReadDir;
  if (!S_ISDIR(st.st_mode)) access &= kFsReadFile | kFsWriteFile | kFsTruncate;
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = fd.get();
  if (::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
    return fail_errno(errno, fmt::format("landlock rule for {}", right.path));
  return {};
}

constexpr std::string_view kEveryProcess[] = {"brk",
                                              "mmap",
                                              "munmap",
                                              "mremap",
                                              "mprotect",
                                              "madvise",
                                              "futex",
                                              "clock_gettime",
                                              "gettimeofday",
                                              "clock_nanosleep",
                                              "nanosleep",
                                              "exit",
                                              "exit_group",
                                              "rt_sigreturn",
                                              "rt_sigprocmask",
                                              "rt_sigaction",
                                              "sigaltstack",
                                              "restart_syscall",
                                              "getpid",
                                              "gettid",
                                              "getrandom",
                                              "close",
                                              "read",
                                              "write",
                                              "sched_yield",
                                              "rseq",
                                              "set_robust_list",
                                              "tgkill",
                                              "membarrier"};

#ifdef SANDBOX_SANITIZED
constexpr std::string_view kSanitizer[] = {"readlink",
                                           "open",
                                           "openat",
                                           "newfstatat",
                                           "fstat",
                                           "lseek",
                                           "getuid",
                                           "geteuid",
                                           "getgid",
                                           "prctl",
                                           "sched_getaffinity",
                                           "clone",
                                           "clone3",
                                           "wait4",
                                           "ptrace",
                                           "pipe2",
                                           "getdents64",
                                           "ioctl",
                                           "prlimit64",
                                           "process_vm_readv",
                                           "getrlimit",
                                           "setrlimit",
                                           "arch_prctl",
                                           "personality",
                                           "getppid",
                                           "kill",
                                           "fcntl",
                                           "dup",
                                           "dup2",
                                           "readlinkat",
                                           "access",
                                           "stat",
                                           "lstat",
                                           "uname",
                                           "set_tid_address",
                                           "getcwd",
                                           "pread64"};
#endif

}  // namespace

int landlock_abi() {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi > 0 ? static_cast<int>(abi) : 0;
}

Status drop_privileges(Parent parent) {
#ifdef SANDBOX_SANITIZED
  // Now, in place of at the end: then it could not look at the process, and would call that a leak.
  __lsan_do_leak_check();
#endif
  if (parent == Parent::kEndsUs && ::prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
    return fail_errno(errno, "PR_SET_PDEATHSIG");
  if (::prctl(PR_SET_DUMPABLE, 0) < 0) return fail_errno(errno, "PR_SET_DUMPABLE");
  // Emptying the bounding set needs CAP_SETPCAP; without it there is nothing in the sets to begin
  // with.
  capng_clear(CAPNG_SELECT_ALL);
  if (::geteuid() == 0) (void)capng_apply(CAPNG_SELECT_BOUNDS);
  if (capng_apply(CAPNG_SELECT_CAPS) != 0)
    return fail(Code::kPermission, "capabilities could not be dropped");
  (void)capng_apply(CAPNG_SELECT_AMBIENT);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return fail_errno(errno, "PR_SET_NO_NEW_PRIVS");
  return {};
}

Status landlock_only(const std::vector<PathRight>& allowed, bool network) {
  const int abi = landlock_abi();
  if (abi == 0) return fail(Code::kUnavailable, "this kernel has no Landlock");
  RulesetAttributes attributes{fs_rights(abi), network || abi < 4 ? 0 : kNetBindConnect};
  const size_t size = abi < 4 ? sizeof(uint64_t) : sizeof attributes;
  const Fd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset) return fail_errno(errno, "landlock_create_ruleset");
  for (const PathRight& right : allowed) TRY(add_path(ruleset.get(), right, abi));
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) < 0)
    return fail_errno(errno, "landlock_restrict_self");
  return {};
}

Status seccomp_allow(const std::vector<std::string_view>& names) {
  return seccomp_allow(names, {});
}

Status seccomp_allow(const std::vector<std::string_view>& names,
                     const std::vector<SocketRule>& sockets) {
  const std::unique_ptr<void, void (*)(void*)> filter(::seccomp_init(SCMP_ACT_KILL_PROCESS),
                                                      [](void* f) { ::seccomp_release(f); });
  if (!filter) return fail(Code::kUnavailable, "seccomp_init failed");
  const auto allow = [&](std::string_view name) -> Status {
    const int number = ::seccomp_syscall_resolve_name(std::string(name).c_str());
    if (number == __NR_SCMP_ERROR || number < 0) return {};
    const int rc = ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, number, 0);
    if (rc < 0) return fail_errno(-rc, fmt::format("seccomp rule for {}", name));
    return {};
  };
  for (const auto name : kEveryProcess) TRY(allow(name));
  for (const auto name : names) TRY(allow(name));
#ifdef SANDBOX_SANITIZED
  for (const auto name : kSanitizer) TRY(allow(name));
#endif
  constexpr uint64_t kFlags = ~static_cast<uint64_t>(SOCK_CLOEXEC | SOCK_NONBLOCK) & 0xFFFFFFFFU;
  for (const SocketRule& rule : sockets) {
    // Not by the macros SCMP_A0 and SCMP_A1: they leave a field out, which clang takes for an
    // oversight.
    const scmp_arg_cmp family{0, SCMP_CMP_EQ, static_cast<scmp_datum_t>(rule.family), 0};
    const scmp_arg_cmp type{1, SCMP_CMP_MASKED_EQ, kFlags, static_cast<scmp_datum_t>(rule.type)};
    const int rc =
        ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(socket), 2, family, type);
    if (rc < 0) return fail_errno(-rc, "seccomp rule for socket");
  }
  const int rc = ::seccomp_load(filter.get());
  if (rc < 0) return fail_errno(-rc, "seccomp_load");
  return {};
}

size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) < 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<size_t>(limit.rlim_cur);
}

void forbid_core_files() {
  const rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
}

}  // namespace sandbox::confine
