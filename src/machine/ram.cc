#include "machine/ram.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"

namespace sandbox {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kChunk = 512U << 10;  // stays in the second-level cache

bool is_zero(const uint8_t* page, size_t size) {
  return page[0] == 0 && std::memcmp(page, page + 1, size - 1) == 0;
}

Status write_at(int to, const uint8_t* bytes, size_t size, off_t at) {
  while (size > 0) {
    const ssize_t n = ::pwrite(to, bytes, size, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "writing guest memory");
    bytes += n;
    size -= static_cast<size_t>(n);
    at += n;
  }
  return {};
}

// Runs of pages that are not zero, each in one write.
Status write_nonzero(int to, const uint8_t* bytes, size_t size, off_t at) {
  const auto zero_at = [&](size_t i) { return is_zero(bytes + i, std::min(kPage, size - i)); };
  for (size_t i = 0; i < size;) {
    while (i < size && zero_at(i)) i += kPage;
    const size_t begin = i;
    while (i < size && !zero_at(i)) i += kPage;
    if (begin >= size) break;
    const size_t end = std::min(i, size);
    TRY(write_at(to, bytes + begin, end - begin, at + static_cast<off_t>(begin)));
  }
  return {};
}

Status copy_extent(int from, int to, off_t begin, off_t end, Bytes& buffer, bool drop_zero_pages) {
  while (begin < end) {
    const size_t want = std::min(buffer.size(), static_cast<size_t>(end - begin));
    const ssize_t n = ::pread(from, buffer.data(), want, begin);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(n < 0 ? errno : EIO, "reading guest memory");
    const auto size = static_cast<size_t>(n);
    TRY(drop_zero_pages ? write_nonzero(to, buffer.data(), size, begin)
                        : write_at(to, buffer.data(), size, begin));
    begin += n;
  }
  return {};
}

}  // namespace

Result<Fd> new_guest_memory(uint64_t bytes) {
  Fd fd(::memfd_create("guest-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "memfd_create");
  // QEMU opens it by its name in /proc, possibly under another uid; nobody else can reach that
  // name.
  if (::fchmod(fd.get(), 0666) < 0) return fail_errno(errno, "fchmod");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0) return fail_errno(errno, "ftruncate");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
    return fail_errno(errno, "sealing guest memory");
  return fd;
}

Status copy_sparse(int from, int to, uint64_t bytes, bool drop_zero_pages) {
  Bytes buffer(kChunk);
  const auto size = static_cast<off_t>(bytes);
  off_t at = 0;
  while (at < size) {
    const off_t begin = ::lseek(from, at, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) return {};  // only a hole is left
    if (begin < 0) return fail_errno(errno, "SEEK_DATA");
    const off_t end = ::lseek(from, begin, SEEK_HOLE);
    if (end < 0) return fail_errno(errno, "SEEK_HOLE");
    TRY(copy_extent(from, to, begin, std::min(end, size), buffer, drop_zero_pages));
    at = end;
  }
  return {};
}

}  // namespace sandbox
