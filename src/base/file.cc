#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox {

namespace fs = std::filesystem;

Result<std::string> read_file(const std::string& path, size_t limit) {
  ASSIGN(const Fd fd, open_file(path, O_RDONLY));
  auto content = read_all(fd.get(), limit);
  if (!content) return fail(std::move(content.error()).while_doing(path));
  return content;
}

Status write_file_atomic(const std::string& path, std::string_view content, unsigned mode) {
  std::string temporary = path + ".XXXXXX";
  Fd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) return fail_errno(errno, fmt::format("create {}", temporary));
  const auto finish = [&]() -> Status {
    TRY(write_all(fd.get(), content));
    if (::fchmod(fd.get(), mode) < 0) return fail_errno(errno, "fchmod");
    if (::fsync(fd.get()) < 0) return fail_errno(errno, "fsync");
    if (::rename(temporary.c_str(), path.c_str()) < 0)
      return fail_errno(errno, fmt::format("rename to {}", path));
    return {};
  };
  Status status = finish();
  if (!status) ::unlink(temporary.c_str());
  return status;
}

Status make_private_dir(const std::string& path) {
  fs::path partial;
  for (const auto& part : fs::path(path)) {
    partial /= part;
    if (partial.empty() || partial == "/") continue;
    if (::mkdir(partial.c_str(), 0700) == 0 || errno == EEXIST) continue;
    return fail_errno(errno, fmt::format("mkdir {}", partial.string()));
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) return fail(Code::kInvalid, "{} is not a directory", path);
  return {};
}

Status remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return fail(Code::kIo, "removing {}: {}", path, error.message());
  return {};
}

uint64_t allocated_bytes(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) < 0) return 0;
  uint64_t total = static_cast<uint64_t>(st.st_blocks) * 512;
  if (!S_ISDIR(st.st_mode)) return total;
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error))
    if (::lstat(it->path().c_str(), &st) == 0) total += static_cast<uint64_t>(st.st_blocks) * 512;
  return total;
}

Result<FileLock> FileLock::try_acquire(const std::string& path) {
  ASSIGN(Fd fd, open_file(path, O_RDWR | O_CREAT));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno == EWOULDBLOCK) return fail(Code::kExists, "{} is in use by another process", path);
    return fail_errno(errno, fmt::format("flock {}", path));
  }
  return FileLock(std::move(fd));
}

Result<FileLock> FileLock::acquire(const std::string& path) {
  ASSIGN(Fd fd, open_file(path, O_RDWR | O_CREAT));
  while (::flock(fd.get(), LOCK_EX) < 0)
    if (errno != EINTR) return fail_errno(errno, fmt::format("flock {}", path));
  return FileLock(std::move(fd));
}

}  // namespace sandbox
