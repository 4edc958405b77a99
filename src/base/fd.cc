#include "base/fd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox {

void Fd::reset() {
  if (fd_ >= 0) {
    const int saved = errno;
    ::close(fd_);
    errno = saved;
    fd_ = -1;
  }
}

Result<Fd> Fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return fail_errno(errno, "duplicating a descriptor");
  return Fd(copy);
}

Result<Fd> open_file(const std::string& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return fail_errno(errno, fmt::format("open {}", path));
  return Fd(fd);
}

Result<Fd> memory_file(const std::string& name, std::string_view content) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!fd) return fail_errno(errno, "memfd_create");
  TRY(write_all(fd.get(), content));
  if (::lseek(fd.get(), 0, SEEK_SET) < 0) return fail_errno(errno, "lseek");
  return fd;
}

Status set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0) return fail_errno(errno, "fcntl F_GETFL");
  const int wanted = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
  if (::fcntl(fd, F_SETFL, wanted) < 0) return fail_errno(errno, "fcntl F_SETFL");
  return {};
}

Status set_cloexec(int fd, bool on) {
  if (::fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0) return fail_errno(errno, "fcntl F_SETFD");
  return {};
}

Result<std::string> read_all(int fd, size_t limit) {
  std::string out;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "read");
    }
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > limit)
      return fail(Code::kLimit, "more than {} bytes", limit);
    out.append(buffer, static_cast<size_t>(n));
  }
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "write");
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace sandbox
