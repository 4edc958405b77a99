#pragma once
// Files on the host. Everything the product creates is 0600 in directories of 0700 (contract V7).

#include <filesystem>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

Result<std::string> read_file(const std::string& path, size_t limit = 64U << 20);
// Written beside, synced, renamed into place: readers see the old or the new content, never a part.
Status write_file_atomic(const std::string& path, std::string_view content, unsigned mode = 0600);
// mkdir -p with 0700 for what it creates.
Status make_private_dir(const std::string& path);
// rm -rf that does not follow symlinks; absent is fine.
Status remove_tree(const std::string& path);
// Bytes really allocated (st_blocks) below a path.
uint64_t allocated_bytes(const std::string& path);

// An exclusive flock held while the object lives. kExists when another process holds it.
class FileLock {
 public:
  static Result<FileLock> try_acquire(const std::string& path);
  static Result<FileLock> acquire(const std::string& path);  // waits
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit FileLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace sandbox
