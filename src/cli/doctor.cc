// sandbox doctor: every precondition of a run, with what would fix it.

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/confine.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "image/store.h"
#include "machine/accel.h"
#include "machine/kernel.h"
#include "machine/qemu.h"
#include "store/home.h"
#include "store/run_record.h"
#include "supervisor/resolv_conf.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kManual = R"(sandbox doctor

Checks everything a run needs on this machine. Each line is ok, warn or FAIL, with a fix where one
is known; the exit status is 1 when something FAILs. Lists what is held on disk, and what killed
sandboxes left behind.

  sandbox doctor
)";

enum class Level { kOk, kWarn, kFail };

struct Finding {
  Level level;
  std::string name;
  std::string detail;
  std::string fix = {};
};

constexpr uint64_t kGiB = uint64_t{1} << 30;

Finding check_accel() {
  const AccelChoice choice = choose_accel();
  if (choice.accel == Accel::kKvm) return {Level::kOk, "kvm", "hardware virtualization works"};
  return {Level::kWarn, "kvm",
          fmt::format("not usable ({}); sandboxes run under emulation: slower, and QEMU does not "
                      "call it a security boundary",
                      choice.reason),
          choice.hint};
}

Finding check_qemu() {
  const auto qemu = find_qemu();
  if (!qemu) return {Level::kFail, "qemu", qemu.error().message, qemu.error().hint};
  const auto version = qemu_version(*qemu);
  if (!version) return {Level::kFail, "qemu", version.error().message, version.error().hint};
  return {Level::kOk, "qemu", *version};
}

Finding check_kernel(const Home& home) {
  const auto kernel = installed_kernel(home);
  if (kernel) return {Level::kOk, "guest kernel", kernel->version};
  const Level level = kernel.error().code == Code::kNotFound ? Level::kWarn : Level::kFail;
  return {level, "guest kernel", kernel.error().message,
          kernel.error().hint.empty() ? "sandbox kernel install" : kernel.error().hint};
}

// The kernel may forbid what QEMU's confinement needs, by sysctl or by AppArmor.
Finding check_namespaces() {
  const pid_t pid = ::fork();
  if (pid == 0)
    ::_exit(::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC) == 0
                ? 0
                : errno);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {Level::kOk, "namespaces", "user namespaces can be made"};
  return {Level::kFail, "namespaces",
          fmt::format("user namespaces cannot be made: {}",
                      errno_error(WEXITSTATUS(status), "unshare").message),
          "sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1 "
          "kernel.apparmor_restrict_unprivileged_userns=0; never possible in a chroot, use a "
          "container"};
}

Finding check_landlock() {
  const int abi = confine::landlock_abi();
  if (abi > 0) return {Level::kOk, "landlock", fmt::format("ABI {}", abi)};
  return {Level::kWarn, "landlock",
          "this kernel has none: helpers are held by seccomp and namespaces only",
          "a kernel from 5.13 on with lsm=landlock,..."};
}

Finding check_program(const char* name, std::string_view program, std::string_view what_for) {
  if (const auto path = find_in_path(program)) return {Level::kOk, name, *path};
  return {Level::kWarn, name, fmt::format("{} is missing: {}", program, what_for),
          fmt::format("apt-get install {}", program)};
}

Finding check_ping() {
  constexpr const char* kPath = "/proc/sys/net/ipv4/ping_group_range";
  const auto text = read_file(kPath, 4096);
  if (!text) return {Level::kWarn, "ping", text.error().message};
  std::string range(trim(*text));
  std::replace(range.begin(), range.end(), '\t', ' ');
  const size_t gap = range.find(' ');
  const auto low = parse_decimal(range.substr(0, gap));
  const auto high = gap == std::string::npos
                        ? std::nullopt
                        : parse_decimal(trim(std::string_view(range).substr(gap)));
  if (low && high && *low <= ::getegid() && ::getegid() <= *high)
    return {Level::kOk, "ping", "unprivileged ICMP is allowed"};
  return {
      Level::kWarn, "ping",
      fmt::format(
          "ping_group_range '{}' leaves out group {}: allowed pings are answered with unreachable",
          range, ::getegid()),
      "sysctl -w net.ipv4.ping_group_range='0 2147483647'"};
}

Finding check_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kEnough = 20000;  // 16384 flows and what else a gateway holds
  if (limit.rlim_max >= kEnough)
    return {Level::kOk, "descriptors", fmt::format("{} per process", limit.rlim_max)};
  return {Level::kWarn, "descriptors",
          fmt::format("the hard limit is {}: a sandbox has fewer than 16384 connections",
                      limit.rlim_max),
          "raise 'nofile' in /etc/security/limits.conf"};
}

Finding check_space(const Home& home) {
  struct statvfs st {};
  if (::statvfs(home.root().c_str(), &st) < 0)
    return {Level::kWarn, "space", errno_error(errno, home.root()).message};
  const uint64_t free = static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  if (free >= 4 * kGiB)
    return {Level::kOk, "space", fmt::format("{} free for {}", format_size(free), home.root())};
  return {Level::kWarn, "space", fmt::format("only {} free for {}", format_size(free), home.root()),
          "free some, or set SANDBOX_HOME to another disk"};
}

Finding check_resolvers() {
  const auto text = read_file("/etc/resolv.conf", 1U << 20);
  if (!text)
    return {Level::kWarn, "resolvers", text.error().message,
            "name servers belong into /etc/resolv.conf"};
  const auto servers = parse_nameservers(*text);
  return {Level::kOk, "resolvers", fmt::format("{}", fmt::join(servers, ", "))};
}

Finding check_programs() {
  for (const char* program : {"sandbox-supervisor", "sandbox-gateway", "sandbox-recorder",
                              "sandbox-files", "sandbox-sentry"})
    if (const auto found = find_sibling(program); !found)
      return {Level::kFail, "programs", found.error().message, found.error().hint};
  return {Level::kOk, "programs", "all helpers are in place"};
}

void held_on_disk(const Home& home, std::vector<Finding>& out) {
  const auto add = [&](std::string_view name, const Result<std::string>& dir) {
    if (dir)
      out.push_back({Level::kOk, std::string(name),
                     fmt::format("{} in {}", format_size(allocated_bytes(*dir)), *dir)});
  };
  add("images", home.images_dir());
  add("boot states", home.boot_dir());
  add("kernels", home.kernel_dir());
}

void leftovers(const Home& home, std::vector<Finding>& out) {
  const auto runs = list_runs(home);
  if (!runs) return out.push_back({Level::kWarn, "sandboxes", runs.error().message});
  size_t alive = 0;
  size_t ended = 0;
  for (const RunEntry& run : *runs) {
    alive += run.alive ? 1 : 0;
    ended += run.alive || run.leftover ? 0 : 1;
    if (run.leftover)
      out.push_back({Level::kWarn, "leftover",
                     fmt::format("sandbox '{}' was killed; {} in {}", run.name,
                                 format_size(allocated_bytes(run.dir)), run.dir),
                     fmt::format("rm -r {}", run.dir)});
  }
  out.push_back({Level::kOk, "sandboxes",
                 fmt::format("{} running, {} ended with their logs kept", alive, ended)});
}

void print(const Finding& finding) {
  const char* word = finding.level == Level::kOk     ? "ok  "
                     : finding.level == Level::kWarn ? "warn"
                                                     : "FAIL";
  fmt::print("{} {:<13} {}\n", word, finding.name, escape_terminal(finding.detail));
  if (finding.level != Level::kOk && !finding.fix.empty())
    fmt::print("     {:<13} fix: {}\n", "", escape_terminal(finding.fix));
}

int run_doctor(std::vector<std::string> args) {
  if (!args.empty()) return usage_error("doctor", fmt::format("unexpected word '{}'", args[0]));
  std::vector<Finding> findings = {check_programs(), check_accel(), check_qemu(),
                                   check_namespaces(), check_landlock()};
  const auto home = Home::open();
  if (home) {
    findings.push_back(check_kernel(*home));
    findings.push_back(check_space(*home));
  } else {
    findings.push_back({Level::kFail, "home", home.error().message, home.error().hint});
  }
  findings.push_back(check_program("registries", "skopeo", "images cannot be pulled"));
  findings.push_back(
      check_program("built-in image", "mmdebstrap", "the built-in image cannot be made"));
  findings.push_back(check_resolvers());
  findings.push_back(check_ping());
  findings.push_back(check_descriptors());
  if (home) {
    leftovers(*home, findings);
    held_on_disk(*home, findings);
  }
  bool failed = false;
  for (const Finding& finding : findings) {
    print(finding);
    failed = failed || finding.level == Level::kFail;
  }
  return failed ? kFailed : kDone;
}

}  // namespace

extern const Command kDoctor;
const Command kDoctor{"doctor", "check this machine, with a fix for what is missing", kManual,
                      run_doctor};

}  // namespace sandbox::cli
