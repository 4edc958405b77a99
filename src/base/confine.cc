#include "base/confine.h"

#include <cap-ng.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <sys/mman.h>
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
                                              "munmap",
                                              "mremap",
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

class Filter {
 public:
  static Result<Filter> create() {
    Filter filter(::seccomp_init(SCMP_ACT_KILL_PROCESS));
    if (!filter.context_) return fail(Code::kUnavailable, "seccomp_init failed");
    return filter;
  }

  Status allow(std::string_view name) { return allow_if(name, {}); }

  // Only when every condition on the arguments holds. A call may be allowed several times.
  Status allow_if(std::string_view name, const std::vector<scmp_arg_cmp>& conditions) {
    const int number = ::seccomp_syscall_resolve_name(std::string(name).c_str());
    if (number == __NR_SCMP_ERROR || number < 0) return {};
    const int rc =
        ::seccomp_rule_add_array(context_.get(), SCMP_ACT_ALLOW, number,
                                 static_cast<unsigned>(conditions.size()), conditions.data());
    if (rc < 0) return fail_errno(-rc, fmt::format("seccomp rule for {}", name));
    return {};
  }

  Status load() {
    const int rc = ::seccomp_load(context_.get());
    if (rc < 0) return fail_errno(-rc, "seccomp_load");
    return {};
  }

 private:
  explicit Filter(scmp_filter_ctx context) : context_(context, ::seccomp_release) {}
  std::unique_ptr<void, void (*)(void*)> context_;
};

// Not by the macros SCMP_A0 and its like: they leave a field out, which clang takes for an
// oversight.
scmp_arg_cmp equals(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_EQ, value, 0};
}
scmp_arg_cmp masked(unsigned argument, uint64_t mask, uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

#ifdef SANDBOX_SANITIZED

Status allow_base(Filter& filter) {
  for (const auto name : kEveryProcess) TRY(filter.allow(name));
  for (const auto name : kSanitizer) TRY(filter.allow(name));
  for (const auto name : {"mmap", "mprotect", "tgkill"}) TRY(filter.allow(name));
  return {};
}

#else

// No new code: what was loaded at the start is all there will be, so an intruder has to do with the
// pieces of it. And abort() may signal this process; another is none of its business.
Status allow_base(Filter& filter) {
  for (const auto name : kEveryProcess) TRY(filter.allow(name));
  for (const auto name : {"mmap", "mprotect"})
    TRY(filter.allow_if(name, {masked(2, PROT_EXEC, 0)}));
  return filter.allow_if("tgkill", {equals(0, static_cast<uint64_t>(::getpid()))});
}

#endif

// The rest of fcntl can make the kernel send any signal to any process of the user (F_SETOWN,
// F_SETSIG), and take locks and leases on files.
Status allow_fcntl(Filter& filter) {
  for (const int command : {F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL})
    TRY(filter.allow_if("fcntl", {equals(1, static_cast<uint64_t>(command))}));
  return {};
}

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
  ASSIGN(Filter filter, Filter::create());
  TRY(allow_base(filter));
  for (const auto name : names) {
    if (name == "fcntl")
      TRY(allow_fcntl(filter));
    else
      TRY(filter.allow(name));
  }
  constexpr uint64_t kFlags = ~static_cast<uint64_t>(SOCK_CLOEXEC | SOCK_NONBLOCK) & 0xFFFFFFFFU;
  for (const SocketRule& rule : sockets)
    TRY(filter.allow_if("socket", {equals(0, static_cast<uint64_t>(rule.family)),
                                   masked(1, kFlags, static_cast<uint64_t>(rule.type)),
                                   equals(2, static_cast<uint64_t>(rule.protocol))}));
  return filter.load();
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
