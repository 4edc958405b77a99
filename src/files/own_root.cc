#include "files/own_root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox::files {
namespace {

constexpr const char* kOwnDescriptors = "/proc/self/fd";
constexpr const char* kNewRoot = "/tmp";  // covered, and only for this process

Status done(int result, std::string_view what) {
  if (result < 0) return fail_errno(errno, what);
  return {};
}

Status write_text(const char* path, std::string_view text) {
  const Fd fd(::open(path, O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, path);
  return done(static_cast<int>(::write(fd.get(), text.data(), text.size())), path);
}

Status enter_namespaces() {
  const unsigned uid = ::geteuid();
  const unsigned gid = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
    return fail(Error{Code::kUnavailable,
                      fmt::format("the file server may not make namespaces of its own: {}",
                                  errno_error(errno, "unshare").message),
                      "sandbox doctor says what forbids it and what would fix it"});
  TRY(write_text("/proc/self/setgroups", "deny"));
  TRY(write_text("/proc/self/uid_map", fmt::format("{} {} 1", uid, uid)));
  return write_text("/proc/self/gid_map", fmt::format("{} {} 1", gid, gid));
}

struct Taken {
  Fd tree;
  bool folder = false;
};

// Taken before the root changes. Read-only holds here for what Landlock lets pass, too.
Result<Taken> take(const std::string& path, bool read_only) {
  Taken taken;
  taken.tree = Fd(static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, path.c_str(),
                                             OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)));
  TRY(done(taken.tree.get(), path));
  struct stat st {};
  TRY(done(::fstat(taken.tree.get(), &st), path));
  taken.folder = S_ISDIR(st.st_mode);
  if (!taken.folder && !S_ISREG(st.st_mode))
    return fail(Code::kInvalid, "{} is neither a directory nor a regular file", path);
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (read_only) attributes.attr_set |= MOUNT_ATTR_RDONLY;
  const long rc = ::syscall(SYS_mount_setattr, taken.tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE,
                            &attributes, sizeof attributes);
  TRY(done(static_cast<int>(rc), path));
  return taken;
}

Status place(const Taken& taken, const std::string& path) {
  if (taken.folder) {
    TRY(done(::mkdir(path.c_str(), 0755), path));
  } else {
    const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    TRY(done(file.get(), path));
  }
  const long rc = ::syscall(SYS_move_mount, taken.tree.get(), "", AT_FDCWD, path.c_str(),
                            MOVE_MOUNT_F_EMPTY_PATH);
  return done(static_cast<int>(rc), path);
}

Status change_root() {
  TRY(done(::mount("none", kNewRoot, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                   "size=64k,nr_inodes=128,mode=755"),
           "mounting a tmpfs"));
  TRY(done(::chdir(kNewRoot), kNewRoot));
  TRY(done(static_cast<int>(::syscall(SYS_pivot_root, ".", ".")), "pivot_root"));
  TRY(done(::umount2(".", MNT_DETACH), "unmounting the host"));
  return done(::chdir("/"), "chdir");
}

Status close_root() {
  mount_attr read_only{};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  const long rc = ::syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &read_only, sizeof read_only);
  return done(static_cast<int>(rc), "mount_setattr");
}

}  // namespace

Result<Config> enter_own_root(Config config) {
  TRY(enter_namespaces());
  std::vector<Taken> shares;
  for (ShareConfig& share : config.shares) {
    ASSIGN(Taken taken, take(share.path, share.read_only));
    shares.push_back(std::move(taken));
    share.path = fmt::format("/{}", share.id);
  }
  ASSIGN(const Taken descriptors, take(kOwnDescriptors, false));
  TRY(change_root());
  for (size_t i = 0; i < shares.size(); ++i) TRY(place(shares[i], config.shares[i].path));
  TRY(done(::mkdir("/proc", 0755), "/proc"));
  TRY(done(::mkdir("/proc/self", 0755), "/proc/self"));
  TRY(place(descriptors, kOwnDescriptors));
  TRY(close_root());
  return config;
}

}  // namespace sandbox::files
