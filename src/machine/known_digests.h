#pragma once
// SHA-256 of files that rarely change, remembered by what the kernel says about the file: device,
// inode, size, mtime, ctime. Hashing 130 MB takes half a second, asking takes microseconds. Kept
// in a text file of ours (0600 in a 0700 directory): whoever can write there could as well write
// the files it speaks of.
//
// A file that changed less than two seconds ago is hashed but not remembered, since a second
// change within one tick of the file system's clock would leave all of these equal.

#include <map>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace sandbox {

std::string sha256_hex(ByteView bytes);
// From position 0 to the end; does not move the position.
Result<std::string> sha256_of_file(int fd);
// For files that are mostly holes: SHA-256 over the blocks of 64 KiB that are not all zero, each
// after its number (u64 LE), and then the size in bytes. Equal for equal content, wherever the
// holes are; takes time for what is there, not for the holes. Moves the position.
Result<std::string> sparse_sha256_of_file(int fd);

class KnownDigests {
 public:
  static KnownDigests load(std::string path);  // a missing or garbled file is an empty memory

  Result<std::string> of(const std::string& path);
  // The same with sparse_sha256_of_file; such a digest has a name of its own in the memory.
  Result<std::string> of_sparse(int fd, const std::string& path);
  // Trusts a digest for a file that the caller has just written, closed for writing and hashed.
  Status learn_sparse(int fd, const std::string& path, const std::string& sha256);
  Status save();  // writes only when something was learnt

 private:
  struct Known {
    std::string identity;
    std::string sha256;
  };
  using Hash = Result<std::string> (*)(int fd);
  Result<std::string> lookup(int fd, const std::string& path, const std::string& name, Hash hash);
  explicit KnownDigests(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::map<std::string, Known> known_;
  bool changed_ = false;
};

}  // namespace sandbox
