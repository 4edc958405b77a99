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
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
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

Status make_mount_point(const std::string& path, bool single_file) {
  if (path.empty() || path[0] != '/')
    return fail(Code::kInvalid, "the mount point '{}' is not absolute", path);
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (::mkdir(path.substr(0, slash).c_str(), 0755) < 0 && errno != EEXIST)
      return fail_errno(errno, "mkdir " + path.substr(0, slash));
  }
  if (single_file) {
    ASSIGN(const Fd file, open_file(path, O_WRONLY | O_CREAT | O_NOCTTY | O_NOFOLLOW, 0644));
    return {};
  }
  if (::mkdir(path.c_str(), 0755) < 0 && errno != EEXIST) return fail_errno(errno, "mkdir " + path);
  return {};
}

Status mount_fuse(int fuse, const ShareMount& share) {
  const std::string options = fmt::format(
      "fd={},rootmode={:o},user_id=0,group_id=0,allow_other,default_permissions,max_read={}", fuse,
      share.single_file ? S_IFREG : S_IFDIR, files::kMaxData);
  unsigned long flags = MS_NOSUID | MS_NODEV;
  if (share.read_only) flags |= MS_RDONLY;
  if (::mount(fmt::format("share{}", share.id).c_str(), share.mount_point.c_str(), "fuse.sandbox",
              flags, options.c_str()) < 0)
    return fail_errno(errno, "mounting " + share.mount_point);
  return {};
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

  Status add(const ShareMount& share);
  void start_threads();
  void stop();
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  struct Mount {
    ShareMount share;
    Fd fuse;
    // Keeps the mount busy, so that aborting it cannot also take it away and bare the directory
    // underneath.
    Fd anchor;
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
  Fd stop_;  // an eventfd, readable once the threads shall end
  std::vector<Mount> mounts_;
  Bytes request_ = Bytes(files::kFrameHeader + files::kMaxPayload + 65'536);
  Bytes piece_ = Bytes(kPortRead);
  files::Decoder decoder_;
  bool heard_ = false;  // the host sent something
  int connect_tries_ = 0;
  std::atomic<bool> broken_{false};
  bool stopped_ = false;
  std::mutex mutex_;  // guards the two below
  std::deque<Notification> notifications_;
  bool no_more_notifications_ = false;
  std::condition_variable notified_;
  std::vector<std::thread> threads_;
};

Status FileRelay::Impl::add(const ShareMount& share) {
  TRY(make_mount_point(share.mount_point, share.single_file));
  ASSIGN(Fd fuse, open_file("/dev/fuse", O_RDWR | O_NONBLOCK));
  TRY(mount_fuse(fuse.get(), share));
  Mount mount{share, std::move(fuse), Fd()};
  mount.anchor = Fd(::open(share.mount_point.c_str(), O_PATH | O_CLOEXEC));
  mounts_.push_back(std::move(mount));
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
  for (const Mount& mount : mounts_) (void)::umount2(mount.share.mount_point.c_str(), MNT_FORCE);
}

void FileRelay::Impl::unmount(Mount& mount) {
  const char* path = mount.share.mount_point.c_str();
  mount.anchor.reset();
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
  for (auto mount = mounts_.rbegin(); mount != mounts_.rend(); ++mount) unmount(*mount);
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

Result<std::unique_ptr<FileRelay>> FileRelay::start(Fd port, std::vector<ShareMount> mounts) {
  TRY(set_nonblocking(port.get(), true));
  Fd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop) return fail_errno(errno, "eventfd");
  std::unique_ptr<FileRelay> relay(
      new FileRelay(std::make_unique<Impl>(std::move(port), std::move(stop))));
  // On an error the destructor unmounts what was mounted.
  for (const ShareMount& share : mounts) TRY(relay->impl_->add(share));
  relay->impl_->start_threads();
  return relay;
}

}  // namespace sandbox::guest
