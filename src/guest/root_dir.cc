#include "guest/root_dir.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox::guest {
namespace {

// openat2(2) says EAGAIN where a path has a "..", as links of images do, and anything on the
// machine was renamed or mounted meanwhile. A bound, since it is also what the lease of a file
// says, and the workload may rename for ever.
constexpr int kMostTries = 32;

// Of one name each, so that two files of a directory may be written at the same time.
std::string temporary_beside(const std::string& name) {
  return ".sandbox-new-" + name;
}

}  // namespace

Result<Fd> RootDir::open(const std::string& path, int flags, unsigned mode) const {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  long fd = -1;
  for (int tries = 0; tries < kMostTries; ++tries) {
    fd = ::syscall(SYS_openat2, directory_.get(), path.c_str(), &how, sizeof how);
    if (fd >= 0 || errno != EAGAIN) break;
  }
  if (fd < 0) return fail_errno(errno, fmt::format("open {} in the root", path));
  return Fd(static_cast<int>(fd));
}

bool RootDir::exists(const std::string& path) const {
  return open(path, O_PATH).has_value();
}

Result<std::string> RootDir::read(const std::string& path, size_t limit) const {
  // O_NONBLOCK: a FIFO in its place must not stop sentry.
  ASSIGN(const Fd file, open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return fail(Code::kInvalid, "{} is not a regular file", path);
  return read_all(file.get(), limit);
}

Result<std::optional<std::string>> RootDir::read_if_there(const std::string& path) const {
  auto text = read(path);
  if (text) return std::move(*text);
  if (text.error().code == Code::kNotFound) return std::nullopt;
  return fail(std::move(text).error());
}

Result<RootDir::Place> RootDir::place(const std::string& path) const {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash + 1 == path.size())
    return fail(Code::kInvalid, "'{}' is not the path of a file", path);
  Place place;
  ASSIGN(place.parent, make_directory(path.substr(0, slash)));
  place.name = path.substr(slash + 1);
  return place;
}

// Sub-directories are made one at a time, each below the descriptor of the one before. The depth is
// bounded by PATH_MAX.
Result<Fd> RootDir::make_directory(const std::string& path) const {
  if (path.empty() || path == "/") return open("/", O_PATH | O_DIRECTORY);
  auto existing = open(path, O_PATH | O_DIRECTORY);
  if (existing || existing.error().code != Code::kNotFound) return existing;
  if (path.back() == '/') return make_directory(path.substr(0, path.size() - 1));
  ASSIGN(const Place where, place(path));
  if (::mkdirat(where.parent.get(), where.name.c_str(), 0755) != 0 && errno != EEXIST)
    return fail_errno(errno, "make the directory " + path);
  return open(path, O_PATH | O_DIRECTORY);
}

Result<Fd> RootDir::make_file(const std::string& path) const {
  auto existing = open(path, O_PATH);
  if (existing || existing.error().code != Code::kNotFound) return existing;
  ASSIGN(const Place where, place(path));
  const Fd created(::openat(where.parent.get(), where.name.c_str(),
                            O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!created) return fail_errno(errno, "make the file " + path);
  return open(path, O_PATH);
}

Status RootDir::replace(const std::string& path, std::string_view content, unsigned mode) const {
  ASSIGN(const Place where, place(path));
  const int parent = where.parent.get();
  const std::string temporary = temporary_beside(where.name);
  (void)::unlinkat(parent, temporary.c_str(), 0);
  const Fd file(::openat(parent, temporary.c_str(),
                         O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, "write " + path);
  TRY(write_all(file.get(), content));
  if (::fchmod(file.get(), mode) != 0 ||
      ::renameat(parent, temporary.c_str(), parent, where.name.c_str()) != 0)
    return fail_errno(errno, "write " + path);
  return {};
}

Status RootDir::rewrite(const std::string& path, std::string_view content) const {
  ASSIGN(const Fd file, open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return fail(Code::kInvalid, "{} is not a regular file", path);
  if (::ftruncate(file.get(), 0) != 0) return fail_errno(errno, "write " + path);
  return write_all(file.get(), content);
}

Status RootDir::link(const std::string& path, const std::string& target) const {
  ASSIGN(const Place where, place(path));
  if (::symlinkat(target.c_str(), where.parent.get(), where.name.c_str()) != 0 && errno != EEXIST)
    return fail_errno(errno, "make the link " + path);
  return {};
}

void RootDir::remove(const std::string& path) const {
  const size_t slash = path.rfind('/');
  const auto parent = open(path.substr(0, slash + 1), O_PATH | O_DIRECTORY);
  if (parent) (void)::unlinkat(parent->get(), path.substr(slash + 1).c_str(), 0);
}

}  // namespace sandbox::guest
