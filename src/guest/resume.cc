#include "guest/resume.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <future>

#include "base/file.h"
#include "guest/accounts.h"
#include "guest/network.h"
#include "guest/trust.h"

// fs/ext4/ext4.h of the kernel; not in its exported headers. The argument is a number of file
// system blocks.
#define SANDBOX_EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)

namespace sandbox::guest {
namespace {

using channel::Account;
using channel::Profile;
using channel::ResumeRequest;

// RNDADDENTROPY alone leaves the generators of two clones in step until the next reseed; both calls
// are needed.
Status reseed(int random, const ResumeRequest& request) {
  // struct rand_pool_info of linux/random.h: the number of bits, the number of bytes, the bytes.
  int pool[2 + sizeof request.entropy / sizeof(int)] = {8 * sizeof request.entropy,
                                                        sizeof request.entropy};
  std::memcpy(&pool[2], request.entropy.data(), sizeof request.entropy);
  const bool done =
      ::ioctl(random, RNDADDENTROPY, pool) == 0 && ::ioctl(random, RNDRESEEDCRNG) == 0;
  ::explicit_bzero(pool, sizeof pool);
  if (!done) return fail_errno(errno, "reseed the kernel's random numbers");
  return {};
}

// The disk under a boot state was another, blank one: what the kernel remembers of it must go
// first.
Status mount_disk(const std::string& device) {
  {
    ASSIGN(const Fd disk, open_file(device, O_RDONLY));
    if (::ioctl(disk.get(), BLKFLSBUF, 0) != 0) return fail_errno(errno, "flush " + device);
  }
  if (::mount(device.c_str(), kNewRoot, "ext4", MS_NOATIME | MS_NODEV, "discard") != 0)
    return fail_errno(errno, fmt::format("mount the root disk {}", device));
  return {};
}

Status grow(const RootDir& root, uint64_t bytes) {
  // The root descriptor is O_PATH, which takes no ioctl.
  const Fd directory(::openat(root.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!directory || ::fstat(directory.get(), &info) != 0 || info.st_blksize <= 0)
    return fail_errno(errno, "look at the root file system");
  uint64_t blocks = bytes / static_cast<uint64_t>(info.st_blksize);
  if (::ioctl(directory.get(), SANDBOX_EXT4_IOC_RESIZE_FS, &blocks) != 0)
    return fail_errno(errno, "grow the root file system");
  return {};
}

std::string descriptor_path(const Fd& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

Status mount_inside(const RootDir& root, const char* path, const char* source, const char* type,
                    unsigned long flags) {
  ASSIGN(const Fd target, root.make_directory(path));
  if (::mount(source, descriptor_path(target).c_str(), type, flags, nullptr) != 0)
    return fail_errno(errno, fmt::format("mount {} in the root", path));
  return {};
}

Status mount_kernel_views(const RootDir& root) {
  TRY(mount_inside(root, "/dev", kWorkloadDev, nullptr, MS_BIND | MS_REC));
  TRY(mount_inside(root, "/sys", "sysfs", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC));
  TRY(root.make_directory("/proc"));  // mounted by the workload's own pid 1, in its pid namespace
  ASSIGN(const Fd tmp, root.make_directory("/tmp"));
  if (::chmod(descriptor_path(tmp).c_str(), 01777) != 0) return fail_errno(errno, "chmod /tmp");
  TRY(root.make_directory("/run"));
  return {};
}

Status write_names(const RootDir& root, const ResumeRequest& request) {
  TRY(root.replace("/etc/hostname", request.hostname + "\n", 0644));
  TRY(root.replace("/etc/hosts",
                   fmt::format("127.0.0.1\tlocalhost\n127.0.1.1\t{}\n::1\tlocalhost ip6-localhost "
                               "ip6-loopback\n",
                               request.hostname),
                   0644));
  if (!request.network) return {};
  // The resolver is one hop away on a wire that loses nothing, and answers in every case: at the
  // latest when nobody has answered its own question to a person, which takes 30 s.
  return root.replace(
      "/etc/resolv.conf",
      fmt::format("nameserver {}\noptions attempts:1 timeout:30\n", request.network->dns.text()),
      0644);
}

Status own_home(const RootDir& root, const PasswdEntry& user) {
  if (root.exists(user.home)) return {};
  ASSIGN(const Fd home, root.make_directory(user.home));
  if (::chown(descriptor_path(home).c_str(), user.uid, user.gid) != 0)
    return fail_errno(errno, "chown " + user.home);
  return {};
}

Status provide_account(const RootDir& root, const Account& account) {
  ASSIGN(const auto passwd, root.read_if_there("/etc/passwd"));
  ASSIGN(const auto group, root.read_if_there("/etc/group"));
  ASSIGN(const auto shadow, root.read_if_there("/etc/shadow"));
  const char* shell = root.exists("/bin/bash") ? "/bin/bash" : "/bin/sh";
  const AccountEdit edit =
      add_account(account, passwd.value_or(""), group.value_or(""), shadow, shell);
  const auto put = [&](const std::string& path, const std::optional<std::string>& text) -> Status {
    if (!text) return {};
    return root.exists(path) ? root.rewrite(path, *text) : root.replace(path, *text, 0644);
  };
  TRY(put("/etc/passwd", edit.passwd));
  TRY(put("/etc/group", edit.group));
  TRY(put("/etc/shadow", edit.shadow));
  return own_home(root, edit.user);
}

// sudoers(5) reads files of this directory only when they are 0440 and root's.
Status provide_sudo(const RootDir& root, const Account& account, Profile profile) {
  const char* path = "/etc/sudoers.d/sandbox";
  if (profile == Profile::kHardened) {
    root.remove(path);
    return {};
  }
  if (!root.exists("/etc/sudoers")) return {};
  return root.replace(path, fmt::format("#{} ALL=(ALL:ALL) NOPASSWD:ALL\n", account.uid), 0440);
}

}  // namespace

Status set_clock(uint64_t wall_ns) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(wall_ns / 1'000'000'000);
  time.tv_nsec = static_cast<long>(wall_ns % 1'000'000'000);
  if (::clock_settime(CLOCK_REALTIME, &time) != 0) return fail_errno(errno, "set the clock");
  return {};
}

Result<Resumed> resume(Booted& booted, const ResumeRequest& request) {
  TRY(reseed(booted.random.get(), request));
  TRY(set_clock(request.wall_ns));
  Resumed resumed;
  const auto warn = [&](const Status& status) {
    if (!status) resumed.warnings.push_back(status.error().message);
  };
  if (::sethostname(request.hostname.data(), request.hostname.size()) != 0)
    return fail_errno(errno, "set the host name");
  // Under emulation most of a start is translating code that runs for the first time, which each
  // processor does for itself: independent steps go side by side. The destructors of the futures
  // wait, so no error below leaves one behind.
  std::future<Status> network = std::async(std::launch::async, [&request]() -> Status {
    return request.network ? configure_network(*request.network) : Status();
  });
  TRY(mount_disk(request.disk));
  ASSIGN(Fd directory, open_file(kNewRoot, O_PATH | O_DIRECTORY));
  resumed.root = RootDir(std::move(directory));
  if (request.disk_bytes != 0) warn(grow(resumed.root, request.disk_bytes));
  std::future<Status> names = std::async(
      std::launch::async, [&root = resumed.root, &request] { return write_names(root, request); });
  if (request.account) {
    TRY(provide_account(resumed.root, *request.account));
    warn(provide_sudo(resumed.root, *request.account, request.profile));
  }
  if (!request.host_roots.empty()) warn(trust(resumed.root, request.host_roots));
  TRY(mount_kernel_views(resumed.root));
  // Before the first share, which may cover any of it: what is written until here is the disk's.
  TRY(names.get());
  if (!request.shares.empty()) {
    if (!booted.files) return fail(Code::kUnavailable, "this machine has no port for files");
    ASSIGN(resumed.relay, FileRelay::start(std::move(booted.files), resumed.root, request.shares));
  }
  TRY(network.get());
  // After the shares: where one was mounted stands something, and no link is made.
  for (const channel::Link& link : request.links) warn(resumed.root.link(link.path, link.target));
  return resumed;
}

}  // namespace sandbox::guest
