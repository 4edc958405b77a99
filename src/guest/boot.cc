#include "guest/boot.h"

#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace sandbox::guest {
namespace {

constexpr const char* kModules = "/modules";

Status make_dir(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return {};
  return fail_errno(errno, "mkdir " + path);
}

Status mount_new(const char* type, const std::string& target, unsigned long flags,
                 const char* options = "") {
  TRY(make_dir(target));
  if (::mount(type, target.c_str(), type, flags, options) == 0) return {};
  return fail_errno(errno, fmt::format("mount {} on {}", type, target));
}

// Files of the initramfs lie in memory, so what is loaded is deleted.
Status load_modules() {
  const auto order = read_file(std::string(kModules) + "/order");
  if (!order) return {};  // a kernel with everything built in
  for (const std::string_view line : split(*order, '\n')) {
    const std::string_view name = trim(line);
    if (name.empty()) continue;
    const std::string path = fmt::format("{}/{}", kModules, name);
    ASSIGN(const Fd file, open_file(path, O_RDONLY));
    if (::syscall(SYS_finit_module, file.get(), "", 0) != 0 && errno != EEXIST)
      return fail_errno(errno, "load the module " + path);
    (void)::unlink(path.c_str());
  }
  return {};
}

Status enter_own_root() {
  TRY(mount_new("tmpfs", "/base", MS_NOSUID, "mode=755,size=16m"));
  TRY(mount_new("proc", "/base/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  TRY(mount_new("sysfs", "/base/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC));
  TRY(mount_new("devtmpfs", "/base/dev", MS_NOSUID | MS_NOEXEC));
  TRY(mount_new("cgroup2", "/base/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, "nsdelegate"));
  TRY(make_dir(std::string("/base") + kNewRoot));
  if (::chdir("/base") != 0 || ::mount(".", "/", nullptr, MS_MOVE, nullptr) != 0 ||
      ::chroot(".") != 0 || ::chdir("/") != 0)
    return fail_errno(errno, "enter sentry's own root");
  return {};
}

struct Node {
  const char* name;
  unsigned major;
  unsigned minor;
  mode_t mode;
};
// Documentation/admin-guide/devices.txt of the kernel.
constexpr Node kNodes[] = {{"null", 1, 3, 0666},    {"zero", 1, 5, 0666},      {"full", 1, 7, 0666},
                           {"random", 1, 8, 0666},  {"urandom", 1, 9, 0666},   {"tty", 5, 0, 0666},
                           {"fuse", 10, 229, 0666}, {"net/tun", 10, 200, 0666}};
struct Alias {
  const char* name;
  const char* target;
};
constexpr Alias kAliases[] = {{"ptmx", "pts/ptmx"},          {"fd", "/proc/self/fd"},
                              {"stdin", "/proc/self/fd/0"},  {"stdout", "/proc/self/fd/1"},
                              {"stderr", "/proc/self/fd/2"}, {"core", "/proc/kcore"}};

Status make_workload_dev() {
  const std::string dev = kWorkloadDev;
  TRY(mount_new("tmpfs", dev, MS_NOSUID | MS_NOEXEC, "mode=755,size=1m"));
  TRY(make_dir(dev + "/net"));
  for (const Node& node : kNodes) {
    const std::string path = fmt::format("{}/{}", dev, node.name);
    if (::mknod(path.c_str(), S_IFCHR | node.mode, ::makedev(node.major, node.minor)) != 0 ||
        ::chmod(path.c_str(), node.mode) != 0)
      return fail_errno(errno, "make " + path);
  }
  for (const Alias& alias : kAliases) {
    if (::symlink(alias.target, fmt::format("{}/{}", dev, alias.name).c_str()) != 0)
      return fail_errno(errno, fmt::format("make {}/{}", dev, alias.name));
  }
  TRY(mount_new("devpts", dev + "/pts", MS_NOSUID | MS_NOEXEC,
                "newinstance,ptmxmode=0666,mode=0620,gid=5"));
  TRY(mount_new("tmpfs", dev + "/shm", MS_NOSUID | MS_NODEV, "mode=1777"));
  return mount_new("mqueue", dev + "/mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

// Settings of the kernel; one that this kernel lacks is no reason to stop.
struct Setting {
  const char* path;
  const char* value;
};
constexpr Setting kSettings[] = {
    // No way from guest root into the kernel, or through a helper that the kernel starts outside
    // the workload.
    {"/proc/sys/kernel/modules_disabled", "1"},
    {"/proc/sys/kernel/kexec_load_disabled", "1"},
    {"/proc/sys/kernel/usermodehelper/bset", "0 0"},
    {"/proc/sys/kernel/usermodehelper/inheritable", "0 0"},
    {"/proc/sys/kernel/core_pattern", "core"},
    {"/proc/sys/kernel/sysrq", "0"},
    {"/proc/sys/kernel/kptr_restrict", "2"},
    {"/proc/sys/kernel/dmesg_restrict", "1"},
    {"/proc/sys/kernel/unprivileged_bpf_disabled", "1"},
    // What developers' tools run into.
    {"/proc/sys/fs/inotify/max_user_watches", "524288"},
    {"/proc/sys/fs/inotify/max_user_instances", "1024"},
    {"/proc/sys/vm/max_map_count", "262144"},
    // As docker sets them: servers on any port and ping without root. The gateway decides what
    // leaves.
    {"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
    {"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
    // The wire carries IPv4 only; without an address of its own no program waits for IPv6 to fail.
    // Loopback keeps ::1.
    {"/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"},
    {"/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1"},
    {"/proc/self/oom_score_adj", "-1000"},
};

void apply_settings() {
  for (const Setting& setting : kSettings) {
    const auto file = open_file(setting.path, O_WRONLY);
    if (!file || !write_all(file->get(), setting.value))
      log::error("{} cannot be set to {}", setting.path, setting.value);
  }
}

// The workload gets most of the machine's threads and never all: sentry must be able to start a
// command in a full one.
Status make_workload_cgroup() {
  const std::string group = std::string(kCgroups) + "/workload";
  TRY(make_dir(group));
  const auto put = [](const std::string& path, std::string_view value) {
    const auto file = open_file(path, O_WRONLY);
    if (!file || !write_all(file->get(), value)) log::error("{} cannot be written", path);
  };
  put(std::string(kCgroups) + "/cgroup.subtree_control", "+pids");
  const auto threads = read_file("/proc/sys/kernel/threads-max");
  const auto limit = threads ? parse_decimal(trim(*threads)) : std::nullopt;
  if (limit && *limit > 512) put(group + "/pids.max", std::to_string(*limit - 256));
  return {};
}

Status raise_loopback() {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  request.ifr_name[0] = 'l', request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return fail_errno(errno, "raise lo");
  return {};
}

Result<Fd> try_open_port(std::string_view name) {
  const char* ports = "/sys/class/virtio-ports";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(ports), ::closedir);
  while (const dirent* entry = dir ? ::readdir(dir.get()) : nullptr) {
    const auto text = read_file(fmt::format("{}/{}/name", ports, entry->d_name), 256);
    if (text && trim(*text) == name)
      return open_file(fmt::format("/dev/{}", entry->d_name), O_RDWR | O_NONBLOCK);
  }
  return fail(Code::kNotFound, "no port named {}", name);
}

// The host's side announces a port's name a moment after the device; this runs while a boot state
// is made, not at a start.
Result<Fd> open_port(std::string_view name, std::chrono::milliseconds patience) {
  constexpr auto kStep = std::chrono::milliseconds(5);
  while (true) {
    auto port = try_open_port(name);
    if (port || patience <= kStep) return port;
    patience -= kStep;
    std::this_thread::sleep_for(kStep);
  }
}

}  // namespace

Result<Booted> boot() {
  TRY(load_modules());
  TRY(enter_own_root());
  TRY(make_workload_dev());
  apply_settings();
  TRY(make_workload_cgroup());
  TRY(raise_loopback());
  Booted booted;
  ASSIGN(booted.random, open_file("/dev/random", O_RDWR));
  ASSIGN(booted.terminals, open_file(std::string(kWorkloadDev) + "/pts", O_PATH | O_DIRECTORY));
  ASSIGN(booted.control, open_port("sandbox.ctl.0", std::chrono::seconds(10)));
  auto files = open_port("sandbox.fs.0", std::chrono::milliseconds(200));
  if (files) booted.files = std::move(*files);
  return booted;
}

}  // namespace sandbox::guest
