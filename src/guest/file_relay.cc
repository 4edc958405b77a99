// Three threads move whole messages:
//
//   sender     /dev/fuse of every share → port
//   receiver   port → /dev/fuse: replies are written at once, notifications go to the notifier
//   notifier   notifications → /dev/fuse
//
// Two directions need two threads: the port stops taking when the host's socket is full, and what
// the host then waits for is that its replies are read. Notifications need the third: to drop a
// name from its cache the kernel takes the lock of the directory, which a process inside may hold
// while it waits for a reply; to drop pages it may first have to write them. In both cases the
// write of the notification waits for a reply that only the receiver can bring.
//
// The file systems exist before the threads do, mounted nowhere (fsmount), and are put in their
// places one after the other when the threads run: the mount point of a share inside another is
// looked up in that other one, which must answer.
//
// A notification that finds no room waiting (kMaxNotifications) is dropped: the caches it was for
// expire by time.
//
// Limits of the kernel (6.12): a port takes 32 KiB of one write and gives 4096 bytes to one read,
// so both are loops; a read of /dev/fuse wants room for the largest request at once, or it is
// EINVAL; a write to it must be one whole message.

#include "guest/file_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <ranges>
#include <thread>

#include "base/bytes.h"
#include "files/transport.h"

namespace sandbox::guest {

namespace {

constexpr size_t kMaxNotifications = 65'536;
constexpr size_t kPortRead = 64U << 10;
// Requests taken from one share before the next has its turn.
constexpr int kTurn = 16;
// How long the port may be without a host before the first byte of it came.
constexpr int kConnectTries = 200;
constexpr int kConnectPauseMs = 50;

// The file system of a share, mounted nowhere yet. The descriptor is the mount.
Result<Fd> make_mount(int fuse, const channel::Share& share) {
  const Fd context(::fsopen("fuse", FSOPEN_CLOEXEC));
  if (!context) return fail_errno(errno, "make a FUSE file system");
  const std::pair<const char*, std::string> values[] = {
      {"source", fmt::format("share{}", share.id)},
      {"subtype", "sandbox"},
      {"fd", std::to_string(fuse)},
      {"rootmode", fmt::format("{:o}", share.single_file ? S_IFREG : S_IFDIR)},
      {"user_id", "0"},
      {"group_id", "0"},
      {"max_read", std::to_string(files::kMaxData)}};
  std::vector<const char*> flags = {"allow_other", "default_permissions"};
  unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (share.read_only) {
    flags.push_back("ro");
    attributes |= MOUNT_ATTR_RDONLY;
  }
  for (const auto& [key, value] : values)
    if (::fsconfig(context.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0) != 0)
      return fail_errno(errno, fmt::format("set {} of a FUSE file system", key));
  for (const char* flag : flags)
    if (::fsconfig(context.get(), FSCONFIG_SET_FLAG, flag, nullptr, 0) != 0)
      return fail_errno(errno, fmt::format("set {} of a FUSE file system", flag));
  if (::fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_errno(errno, "make a FUSE file system");
  Fd mount(::fsmount(context.get(), FSMOUNT_CLOEXEC, attributes));
  if (!mount) return fail_errno(errno, "make a FUSE mount");
  return mount;
}

// The mount point as the kernel resolved it, free of symbolic links.
Result<std::string> resolved_path(const Fd& point) {
  char path[PATH_MAX];
  const ssize_t size =
      ::readlink(fmt::format("/proc/self/fd/{}", point.get()).c_str(), path, sizeof path);
  if (size <= 0) return fail_errno(errno, "resolve a mount point");
  return std::string(path, static_cast<size_t>(size));
}

// New threads inherit the mask: all signals stay with the threads of the caller.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

class FileRelay::Impl {
 public:
  Impl(Fd port, Fd stop) : port_(std::move(port)), stop_(std::move(stop)) {}

  Status add(const channel::Share& share);
  void start_threads();
  Status attach(const RootDir& root);  // puts every mount in its place
  void stop();
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  struct Mount {
    channel::Share share;
    Fd fuse;
    // The mount itself. Held, it keeps the mount busy, so that aborting it cannot also take it away
    // and bare the directory underneath.
    Fd anchor;
    std::string place;  // where it is mounted; empty: nowhere yet
  };
  struct Notification {
    int fuse;
    Bytes message;
  };

  void send_loop();
  bool send_from(const Mount& mount);
  bool write_port(ByteView bytes);
  void receive_loop();
  bool read_port();
  bool deliver(const files::Message& message);
  void notify_loop();
  void break_off();
  void unmount(Mount& mount);
  // Waits for events on `fd`; false when the relay stops.
  bool wait(int fd, short events, int timeout_ms, short* ready);

  Fd port_;
  Fd stop_;                    // an eventfd, readable once the threads shall end
  std::vector<Mount> mounts_;  // complete before the threads start
  Bytes request_ = Bytes(files::kFrameHeader + files::kMaxPayload + 65'536);
  Bytes piece_ = Bytes(kPortRead);
  files::Decoder decoder_;
  bool heard_ = false;  // the host sent something
  int connect_tries_ = 0;
  std::atomic<bool> broken_{false};
  bool stopped_ = false;
  std::mutex mutex_;  // guards the two below and the places of the mounts
  std::deque<Notification> notifications_;
  bool no_more_notifications_ = false;
  std::condition_variable notified_;
  std::vector<std::thread> threads_;
};

Status FileRelay::Impl::add(const channel::Share& share) {
  ASSIGN(Fd fuse, open_file("/dev/fuse", O_RDWR | O_NONBLOCK));
  ASSIGN(Fd mount, make_mount(fuse.get(), share));
  mounts_.push_back({share, std::move(fuse), std::move(mount), {}});
  return {};
}

Status FileRelay::Impl::attach(const RootDir& root) {
  for (Mount& mount : mounts_) {
    const std::string& path = mount.share.path;
    ASSIGN(const Fd point,
           mount.share.single_file ? root.make_file(path) : root.make_directory(path));
    ASSIGN(std::string place, resolved_path(point));
    {
      const std::lock_guard lock(mutex_);
      mount.place = std::move(place);
    }
    if (::move_mount(mount.anchor.get(), "", point.get(), "",
                     MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
      return fail_errno(errno, "mounting " + path);
    // Who breaks off now finds this mount; who did before may not have.
    if (broken_) return fail(Code::kIo, "the file port broke while {} was mounted", path);
  }
  return {};
}

void FileRelay::Impl::start_threads() {
  const SignalsBlocked blocked;
  threads_.emplace_back([this] { send_loop(); });
  threads_.emplace_back([this] { receive_loop(); });
  threads_.emplace_back([this] { notify_loop(); });
}

bool FileRelay::Impl::wait(int fd, short events, int timeout_ms, short* ready) {
  pollfd fds[2] = {{fd, events, 0}, {stop_.get(), POLLIN, 0}};
  if (::poll(fds, 2, timeout_ms) < 0 && errno != EINTR) return false;
  if (ready != nullptr) *ready = fds[0].revents;
  return fds[1].revents == 0;
}

// ---- guest to host

void FileRelay::Impl::send_loop() {
  std::vector<pollfd> fds;
  for (const Mount& mount : mounts_) fds.push_back({mount.fuse.get(), POLLIN, 0});
  fds.push_back({stop_.get(), POLLIN, 0});
  while (!broken_) {
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return break_off();
    if (fds.back().revents != 0) return;
    for (size_t i = 0; i < mounts_.size(); ++i) {
      // An unmounted share is an error for ever; poll passes over negative numbers.
      if (fds[i].revents != 0 && ((fds[i].revents & POLLIN) == 0 || !send_from(mounts_[i])))
        fds[i].fd = -1;
    }
  }
}

// False: this share is unmounted.
bool FileRelay::Impl::send_from(const Mount& mount) {
  for (int i = 0; i < kTurn; ++i) {
    const ssize_t n = ::read(mount.fuse.get(), request_.data() + files::kFrameHeader,
                             request_.size() - files::kFrameHeader);
    if (n < 0) {
      // ENOENT: the request was interrupted before it was read.
      if (errno == EINTR || errno == ENOENT) continue;
      return errno == EAGAIN;
    }
    const auto size = static_cast<size_t>(n);
    files::write_frame_header(request_.data(), mount.share.id, size);
    if (!write_port(ByteView(request_).first(files::kFrameHeader + size))) return true;
  }
  return true;
}

bool FileRelay::Impl::write_port(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(port_.get(), bytes.data(), bytes.size());
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) {
      break_off();
      return false;
    }
    short ready = 0;
    if (!wait(port_.get(), POLLOUT, -1, &ready)) return false;
    // No host on the port: poll does not wait, so this does.
    if ((ready & POLLOUT) == 0 && !wait(-1, 0, kConnectPauseMs, nullptr)) return false;
    if (broken_) return false;
  }
  return true;
}

// ---- host to guest

void FileRelay::Impl::receive_loop() {
  while (wait(port_.get(), POLLIN, -1, nullptr)) {
    if (!read_port()) return break_off();
  }
}

bool FileRelay::Impl::read_port() {
  const ssize_t n = ::read(port_.get(), piece_.data(), piece_.size());
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) {
    // A port whose host has not connected yet reads as ended.
    if (heard_ || ++connect_tries_ > kConnectTries) return false;
    return wait(-1, 0, kConnectPauseMs, nullptr);
  }
  heard_ = true;
  decoder_.append(ByteView(piece_).first(static_cast<size_t>(n)));
  while (true) {
    auto message = decoder_.next();
    if (!message) return false;
    if (!*message) return true;
    if (!deliver(**message)) return false;
  }
}

bool FileRelay::Impl::deliver(const files::Message& message) {
  const Mount* mount = nullptr;
  for (const Mount& candidate : mounts_)
    if (candidate.share.id == message.share) mount = &candidate;
  if (mount == nullptr) return false;
  // struct fuse_out_header: u32 length, s32 error, u64 unique.
  ByteReader header(message.payload);
  header.skip(8);
  if (header.le64() != 0) {
    // ENOENT: whoever waited is gone. ENODEV: unmounted. Neither is the relay's concern.
    (void)!::write(mount->fuse.get(), message.payload.data(), message.payload.size());
    return true;
  }
  const std::lock_guard lock(mutex_);
  if (notifications_.size() < kMaxNotifications) {
    notifications_.push_back(
        {mount->fuse.get(), Bytes(message.payload.begin(), message.payload.end())});
    notified_.notify_one();
  }
  return true;
}

void FileRelay::Impl::notify_loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    notified_.wait(lock, [this] { return no_more_notifications_ || !notifications_.empty(); });
    if (no_more_notifications_) return;
    const Notification next = std::move(notifications_.front());
    notifications_.pop_front();
    lock.unlock();
    // ENOENT: not in the cache.
    (void)!::write(next.fuse, next.message.data(), next.message.size());
    lock.lock();
  }
}

// ---- the end

// MNT_FORCE aborts the connection, which answers everything that waits, the notifier included; the
// anchor keeps the mount.
void FileRelay::Impl::break_off() {
  if (broken_.exchange(true)) return;
  std::vector<std::string> places;
  {
    const std::lock_guard lock(mutex_);
    for (const Mount& mount : mounts_)
      if (!mount.place.empty()) places.push_back(mount.place);
  }
  for (const std::string& place : places) (void)::umount2(place.c_str(), MNT_FORCE);
}

void FileRelay::Impl::unmount(Mount& mount) {
  mount.anchor.reset();
  if (mount.place.empty()) return;
  const char* path = mount.place.c_str();
  if (!broken_ && ::umount2(path, UMOUNT_NOFOLLOW) == 0) return;
  if (!broken_) {
    // In use: what shared mappings hold is written before the rest is cut off.
    const Fd root(::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (root) (void)::syncfs(root.get());
  }
  (void)::umount2(path, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW);
}

void FileRelay::Impl::stop() {
  if (stopped_) return;
  stopped_ = true;
  for (Mount& mount : std::ranges::reverse_view(mounts_)) unmount(mount);
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  {
    const std::lock_guard lock(mutex_);
    no_more_notifications_ = true;
  }
  notified_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

FileRelay::FileRelay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileRelay::~FileRelay() {
  stop();
}
void FileRelay::stop() {
  impl_->stop();
}
bool FileRelay::broken() const {
  return impl_->broken();
}

Result<std::unique_ptr<FileRelay>> FileRelay::start(Fd port, const RootDir& root,
                                                    const std::vector<channel::Share>& shares) {
  TRY(set_nonblocking(port.get(), true));
  Fd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop) return fail_errno(errno, "eventfd");
  std::unique_ptr<FileRelay> relay(
      new FileRelay(std::make_unique<Impl>(std::move(port), std::move(stop))));
  // On an error the destructor unmounts what was mounted.
  for (const channel::Share& share : shares) TRY(relay->impl_->add(share));
  relay->impl_->start_threads();
  TRY(relay->impl_->attach(root));
  return relay;
}

}  // namespace sandbox::guest
