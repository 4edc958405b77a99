// The qcow2 layout is that of docs/interop/qcow2.txt of QEMU, version 3. An empty image is four
// clusters:
//
//   0  header (104 bytes, no extensions)
//   1  reference count table: its entry 0 names cluster 2
//   2  one block of 16-bit reference counts: the first four are 1
//   3  first-level table, all zero: every cluster comes from the backing
//
// A first-level entry covers 8192 clusters of 64 KiB, 512 MiB; one cluster of them covers 4 TiB.

#include "machine/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/text.h"
#include "machine/shape.h"

namespace sandbox {

namespace {

constexpr uint32_t kClusterBits = 16;
constexpr uint64_t kCluster = 1U << kClusterBits;
constexpr uint64_t kPerL1Entry = (kCluster / 8) * kCluster;
constexpr uint64_t kLargest = (kCluster / 8) * kPerL1Entry;
constexpr uint32_t kHeaderBytes = 104;

}  // namespace

Bytes empty_qcow2(uint64_t virtual_bytes) {
  if (virtual_bytes == 0 || virtual_bytes % 512 != 0 || virtual_bytes > kLargest) std::abort();
  ByteWriter out;
  out.be32(0x514649fb);  // "QFI\xfb"
  out.be32(3);
  out.be64(0);  // backing file name: none, the backing is a node given at run time
  out.be32(0);
  out.be32(kClusterBits);
  out.be64(virtual_bytes);
  out.be32(0);  // not encrypted
  out.be32(static_cast<uint32_t>((virtual_bytes + kPerL1Entry - 1) / kPerL1Entry));
  out.be64(3 * kCluster);  // first-level table
  out.be64(1 * kCluster);  // reference count table
  out.be32(1);             // its clusters
  out.be32(0);             // snapshots
  out.be64(0);
  out.be64(0);  // incompatible, compatible, autoclear features: none
  out.be64(0);
  out.be64(0);
  out.be32(4);  // reference counts of 2^4 bits
  out.be32(kHeaderBytes);
  out.zeros(kCluster - out.size());
  out.be64(2 * kCluster);
  out.zeros(2 * kCluster - out.size());
  for (int i = 0; i < 4; ++i) out.be16(1);
  out.zeros(4 * kCluster - out.size());
  return out.take();
}

Result<Fd> create_overlay(const std::string& path) {
  ASSIGN(Fd fd, open_file(path, O_RDWR | O_CREAT | O_EXCL));
  const Bytes image = empty_qcow2(kDiskBytes);
  // Only what is not zero is written; the rest stays a hole.
  const auto put = [&](uint64_t cluster, size_t bytes) -> Status {
    const uint64_t at = cluster * kCluster;
    if (::pwrite(fd.get(), image.data() + at, bytes, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(bytes))
      return fail_errno(errno, fmt::format("write {}", path));
    return {};
  };
  if (::ftruncate(fd.get(), static_cast<off_t>(image.size())) < 0)
    return fail_errno(errno, fmt::format("truncate {}", path));
  TRY(put(0, kHeaderBytes));
  TRY(put(1, 8));
  TRY(put(2, 8));
  return fd;
}

Result<Fd> open_overlay(const std::string& path) {
  return open_file(path, O_RDWR | O_NOFOLLOW);
}

Result<Fd> open_base(const std::string& path) {
  ASSIGN(Fd fd, open_file(path, O_RDONLY));
  struct stat st {};
  if (::fstat(fd.get(), &st) < 0) return fail_errno(errno, path);
  if (!S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) != kDiskBytes)
    return fail(Code::kInvalid, "{} is not a disk of {}", path, format_size(kDiskBytes));
  return fd;
}

Status require_free_space(const std::string& path, uint64_t bytes, std::string_view what_for) {
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) < 0) return fail_errno(errno, path);
  const uint64_t available = uint64_t{space.f_bavail} * space.f_frsize;
  if (available >= bytes) return {};
  return fail(Error{Code::kLimit,
                    fmt::format("{} needs {} in {}, where {} are free", what_for,
                                format_size(bytes), path, format_size(available)),
                    "free some space (sandbox prune helps), or set SANDBOX_HOME to a larger disk"});
}

}  // namespace sandbox
