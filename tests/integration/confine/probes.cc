// What hostile code would try from inside a confined process. See probes.h.

#include "integration/confine/probes.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sandbox::probe {
namespace {

// glibc's wrappers are bypassed where they would ask by way of another call than the one named.
template <typename... Arguments>
int call(long number, Arguments... arguments) {
  return ::syscall(number, arguments...) < 0 ? errno : 0;
}

int outcome(long result) {
  return result < 0 ? errno : 0;
}

int inotify_queue = -1;  // sandbox-files has one, and may not make it any more

// A path below the folder that the test prepared: what the user owns and did not share.
class Place {
 public:
  explicit Place(const char* name) {
    const char* folder = ::getenv("CONFINE_PROBE_DIR");
    const size_t length = folder == nullptr ? 0 : std::strlen(folder);
    if (length + std::strlen(name) + 2 > sizeof path_) return;
    if (length > 0) std::memcpy(path_, folder, length);
    path_[length] = '/';
    std::strcpy(path_ + length + 1, name);  // NOLINT: measured above
  }
  operator const char*() const { return path_; }  // NOLINT: it is a path

 private:
  char path_[512] = {};
};

int number_from(const char* variable) {
  const char* text = ::getenv(variable);
  return text == nullptr ? -1 : std::atoi(text);
}
pid_t victim() {
  return number_from("CONFINE_PROBE_VICTIM");
}

int open_at(const char* path, int flags) {
  return outcome(::openat(AT_FDCWD, path, flags | O_CLOEXEC, 0600));
}

// ---- files ----

int read_passwd() {
  return open_at("/etc/passwd", O_RDONLY);
}
int read_ssh_key() {
  return open_at(Place("home/.ssh/id_ed25519"), O_RDONLY);
}
int read_with_old_open() {
  return call(SYS_open, static_cast<const char*>(Place("home/.ssh/id_ed25519")), O_RDONLY, 0);
}
int read_with_openat2() {
  uint64_t how[3] = {O_RDONLY | O_CLOEXEC, 0, 0};
  return call(SYS_openat2, AT_FDCWD, static_cast<const char*>(Place("home/.ssh/id_ed25519")), how,
              sizeof how);
}
int read_other_sandbox() {
  return open_at(Place("run/other/disk.qcow2"), O_RDONLY);
}
int write_own_memory_file() {
  return open_at("/proc/self/mem", O_RDWR);
}
int read_environment_of_others() {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/environ", victim());
  return open_at(path, O_RDONLY);
}
int list_home() {
  const int fd = ::openat(AT_FDCWD, Place("home"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  char entries[4096];
  return call(SYS_getdents64, fd, entries, sizeof entries);
}
int create_in_tmp() {
  const int fd = ::openat(AT_FDCWD, "/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  return outcome(fd);
}
int create_in_home() {
  return open_at(Place("home/made"), O_WRONLY | O_CREAT);
}
int write_in_home() {
  return open_at(Place("home/notes"), O_WRONLY | O_APPEND);
}
int truncate_in_home() {
  return outcome(::truncate(Place("home/notes"), 1));
}
int unlink_in_home() {
  return outcome(::unlinkat(AT_FDCWD, Place("home/unlinked"), 0));
}
int rename_in_home() {
  return outcome(::renameat(AT_FDCWD, Place("home/renamed"), AT_FDCWD, Place("home/renamed.new")));
}
int mkdir_in_home() {
  return outcome(::mkdirat(AT_FDCWD, Place("home/directory"), 0700));
}
int symlink_in_home() {
  return outcome(::symlinkat("notes", AT_FDCWD, Place("home/symlink")));
}
int link_in_home() {
  return outcome(::linkat(AT_FDCWD, Place("home/notes"), AT_FDCWD, Place("home/link"), 0));
}
int mkfifo_in_home() {
  return outcome(::mknodat(AT_FDCWD, Place("home/fifo"), S_IFIFO | 0600, 0));
}
// Landlock has no say in these three, nor in watching.
int chmod_in_home() {
  return outcome(::fchmodat(AT_FDCWD, Place("home/notes"), 0644, 0));
}
int touch_in_home() {
  return outcome(::utimensat(AT_FDCWD, Place("home/notes"), nullptr, 0));
}
int stat_in_home() {
  struct stat st {};
  return outcome(::fstatat(AT_FDCWD, Place("home/notes"), &st, 0));
}
int set_xattr_in_home() {
  return outcome(::setxattr(Place("home/notes"), "user.probe", "x", 1, 0));
}
int chown_in_home() {
  return outcome(::fchownat(AT_FDCWD, Place("home/notes"), ::getuid(), ::getgid(), 0));
}
int watch_home() {
  return outcome(::inotify_add_watch(inotify_queue, Place("home"), IN_MODIFY));
}
int change_directory() {
  return outcome(::chdir(Place("home")));
}
int change_root() {
  return outcome(::chroot(Place("home")));
}
int open_by_handle() {
  alignas(file_handle) char room[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  auto* handle = reinterpret_cast<file_handle*>(room);
  handle->handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  if (::name_to_handle_at(AT_FDCWD, Place("home/notes"), handle, &mount, 0) < 0) return errno;
  const int folder = ::openat(AT_FDCWD, Place("home"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  return outcome(::open_by_handle_at(folder, handle, O_RDONLY));
}

// ---- programs and processes ----

int run_program() {
  char path[] = "/bin/sh";
  char flag[] = "-c";
  char script[] = "exit 98";  // kExecuted
  char* arguments[] = {path, flag, script, nullptr};
  ::execve(path, arguments, environ);
  return errno;
}
int run_own_bytes() {
  const int fd = static_cast<int>(::syscall(SYS_memfd_create, "program", 0));
  if (fd < 0) return errno;
  constexpr char kScript[] = "#!/bin/sh\nexit 98\n";
  if (::write(fd, kScript, sizeof kScript - 1) < 0) return errno;
  char name[] = "program";
  char* arguments[] = {name, nullptr};
  ::syscall(SYS_execveat, fd, "", arguments, environ, AT_EMPTY_PATH);
  return errno;
}
int end_child(long child) {
  if (child < 0) return errno;
  if (child == 0) ::_exit(0);
  ::syscall(SYS_wait4, child, nullptr, 0, nullptr);
  return 0;
}
int fork_process() {
  return end_child(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}
int fork_with_clone3() {
  uint64_t arguments[8] = {};
  arguments[4] = SIGCHLD;
  return end_child(::syscall(SYS_clone3, arguments, sizeof arguments));
}
int send_signal() {
  return outcome(::kill(victim(), SIGCONT));
}
int send_signal_to_thread() {
  return call(SYS_tgkill, victim(), victim(), SIGCONT);
}
int send_signal_queued() {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  return call(SYS_rt_sigqueueinfo, victim(), SIGCONT, &info);
}
// A signal of choice to any process of the user, by way of a descriptor.
int send_signal_by_descriptor() {
  constexpr int kControl = 4;  // a socket in every program here
  if (::fcntl(kControl, F_SETSIG, SIGCONT) < 0) return errno;
  return outcome(::fcntl(kControl, F_SETOWN, victim()));
}
int take_process_descriptor() {
  return outcome(::syscall(SYS_pidfd_open, victim(), 0));
}
int trace_process() {
  if (::ptrace(PTRACE_SEIZE, victim(), nullptr, nullptr) < 0) return errno;
  return 0;
}
int read_process_memory() {
  char byte = 0;
  iovec ours{&byte, 1};
  iovec theirs{
      reinterpret_cast<void*>(std::strtoull(::getenv("CONFINE_PROBE_ADDRESS"), nullptr, 0)), 1};
  return outcome(::process_vm_readv(victim(), &ours, 1, &theirs, 1, 0));
}
int enter_namespace() {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, victim(), 0));
  if (fd < 0) return errno;
  return outcome(::setns(fd, CLONE_NEWNET));
}
int make_user_namespace() {
  return outcome(::unshare(CLONE_NEWUSER));
}
int make_network_namespace() {
  return outcome(::unshare(CLONE_NEWNET));
}
int mount_something() {
  return outcome(::mount("none", Place("mount_point"), "tmpfs", 0, nullptr));
}
int become_root() {
  return outcome(::setresuid(0, 0, 0));
}
int read_limits_of_others() {
  uint64_t limits[2] = {};
  return call(SYS_prlimit64, victim(), RLIMIT_NOFILE, nullptr, limits);
}

// ---- network ----

int make_socket(int family, int type, int protocol) {
  return outcome(::socket(family, type | SOCK_CLOEXEC, protocol));
}
int socket_tcp() {
  return make_socket(AF_INET, SOCK_STREAM, 0);
}
int socket_udp() {
  return make_socket(AF_INET, SOCK_DGRAM, 0);
}
int socket_tcp6() {
  return make_socket(AF_INET6, SOCK_STREAM, 0);
}
int socket_unix() {
  return make_socket(AF_UNIX, SOCK_STREAM, 0);
}
int socket_netlink() {
  return make_socket(AF_NETLINK, SOCK_RAW, 0);
}
int socket_packet() {
  return make_socket(AF_PACKET, SOCK_RAW, 0);
}
int socket_raw() {
  return make_socket(AF_INET, SOCK_RAW, IPPROTO_TCP);
}
int socket_mptcp() {
  return make_socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
}
int socket_pair_unix() {
  int pair[2];
  return outcome(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
}
sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
int connect_to_host() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const sockaddr_in address = loopback(number_from("CONFINE_PROBE_PORT"));
  return outcome(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address));
}
int serve_on_host() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const sockaddr_in address = loopback(0);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) return errno;
  return outcome(::listen(fd, 1));
}

// No attempt to get anywhere: it shows that what the guest sent has not been looked at yet.
int find_wire_unread() {
  char byte = 0;
  const ssize_t n = ::recv(number_from("CONFINE_PROBE_WIRE"), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 1 ? 0 : n < 0 ? errno : ENODATA;
}

// ---- memory and the kernel's larger interfaces ----

int map_code() {
  void* page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? errno : 0;
}
int make_data_code() {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return errno;
  return outcome(::mprotect(page, 4096, PROT_READ | PROT_EXEC));
}
int make_memory_file() {
  return outcome(::syscall(SYS_memfd_create, "probe", 0));
}
int use_userfaultfd() {
  return outcome(::syscall(SYS_userfaultfd, O_CLOEXEC));
}
int use_io_uring() {
  uint32_t parameters[30] = {};
  return outcome(::syscall(SYS_io_uring_setup, 1, parameters));
}
int use_bpf() {
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_ARRAY;
  attributes.key_size = attributes.value_size = 4;
  attributes.max_entries = 1;
  return outcome(::syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes));
}
int use_perf() {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof attributes;
  attributes.config = PERF_COUNT_SW_TASK_CLOCK;
  attributes.exclude_kernel = 1;
  return outcome(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
}
int use_keyring() {
  return outcome(::syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1));
}
int use_shared_memory() {
  return outcome(::syscall(SYS_shmget, 0 /* IPC_PRIVATE */, 4096, 0600));
}
int use_old_system_calls() {
#ifdef __x86_64__
  long result = 20;  // getpid of the 32-bit table
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  return result < 0 ? static_cast<int>(-result) : 0;
#else
  return ENOSYS;
#endif
}
int become_dumpable() {
  return outcome(::syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0));
}

constexpr Probe kProbes[] = {
    {"read_passwd", read_passwd},
    {"read_ssh_key", read_ssh_key},
    {"read_with_old_open", read_with_old_open},
    {"read_with_openat2", read_with_openat2},
    {"read_other_sandbox", read_other_sandbox},
    {"write_own_memory_file", write_own_memory_file},
    {"read_environment_of_others", read_environment_of_others},
    {"list_home", list_home},
    {"create_in_tmp", create_in_tmp},
    {"create_in_home", create_in_home},
    {"write_in_home", write_in_home},
    {"truncate_in_home", truncate_in_home},
    {"unlink_in_home", unlink_in_home},
    {"rename_in_home", rename_in_home},
    {"mkdir_in_home", mkdir_in_home},
    {"symlink_in_home", symlink_in_home},
    {"link_in_home", link_in_home},
    {"mkfifo_in_home", mkfifo_in_home},
    {"chmod_in_home", chmod_in_home},
    {"touch_in_home", touch_in_home},
    {"stat_in_home", stat_in_home},
    {"set_xattr_in_home", set_xattr_in_home},
    {"chown_in_home", chown_in_home},
    {"watch_home", watch_home},
    {"change_directory", change_directory},
    {"change_root", change_root},
    {"open_by_handle", open_by_handle},
    {"run_program", run_program},
    {"run_own_bytes", run_own_bytes},
    {"fork_process", fork_process},
    {"fork_with_clone3", fork_with_clone3},
    {"send_signal", send_signal},
    {"send_signal_to_thread", send_signal_to_thread},
    {"send_signal_queued", send_signal_queued},
    {"send_signal_by_descriptor", send_signal_by_descriptor},
    {"take_process_descriptor", take_process_descriptor},
    {"trace_process", trace_process},
    {"read_process_memory", read_process_memory},
    {"enter_namespace", enter_namespace},
    {"make_user_namespace", make_user_namespace},
    {"make_network_namespace", make_network_namespace},
    {"mount_something", mount_something},
    {"become_root", become_root},
    {"read_limits_of_others", read_limits_of_others},
    {"socket_tcp", socket_tcp},
    {"socket_udp", socket_udp},
    {"socket_tcp6", socket_tcp6},
    {"socket_unix", socket_unix},
    {"socket_netlink", socket_netlink},
    {"socket_packet", socket_packet},
    {"socket_raw", socket_raw},
    {"socket_mptcp", socket_mptcp},
    {"socket_pair_unix", socket_pair_unix},
    {"connect_to_host", connect_to_host},
    {"serve_on_host", serve_on_host},
    {"find_wire_unread", find_wire_unread},
    {"map_code", map_code},
    {"make_data_code", make_data_code},
    {"make_memory_file", make_memory_file},
    {"use_userfaultfd", use_userfaultfd},
    {"use_io_uring", use_io_uring},
    {"use_bpf", use_bpf},
    {"use_perf", use_perf},
    {"use_keyring", use_keyring},
    {"use_shared_memory", use_shared_memory},
    {"use_old_system_calls", use_old_system_calls},
    {"become_dumpable", become_dumpable},
};

}  // namespace

void prepare() {
  inotify_queue = ::inotify_init1(IN_CLOEXEC);
}

std::span<const Probe> all() {
  return kProbes;
}

}  // namespace sandbox::probe
