#pragma once
// Files inside the workload's root, reached by sentry. The image, and later the workload, may have
// put symbolic links anywhere, so every path is resolved by the kernel with the root as its root
// (openat2, RESOLVE_IN_ROOT): a link to /etc/shadow means the image's own.

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace sandbox::guest {

class RootDir {
 public:
  RootDir() = default;
  explicit RootDir(Fd directory) : directory_(std::move(directory)) {}

  [[nodiscard]] int fd() const { return directory_.get(); }
  [[nodiscard]] bool exists(const std::string& path) const;

  // A regular file of at most `limit` bytes; kNotFound when there is none.
  [[nodiscard]] Result<std::string> read(const std::string& path, size_t limit = 1U << 20) const;
  // nullopt when there is none. What is there and cannot be read is an error: who means to write an
  // extended file back must not take it for an empty one.
  [[nodiscard]] Result<std::optional<std::string>> read_if_there(const std::string& path) const;
  // mkdir -p, 0755 and root's for what it makes. Returns an O_PATH descriptor.
  [[nodiscard]] Result<Fd> make_directory(const std::string& path) const;
  // An existing file of any type, or an empty one made now. Returns an O_PATH descriptor.
  [[nodiscard]] Result<Fd> make_file(const std::string& path) const;
  // Written beside and renamed into place, directories made: a symbolic link at `path` is replaced,
  // not followed.
  [[nodiscard]] Status replace(const std::string& path, std::string_view content,
                               unsigned mode) const;
  // Replaced in place with the owner and mode that the file had, so that /etc/shadow stays what it
  // was.
  [[nodiscard]] Status rewrite(const std::string& path, std::string_view content) const;
  // A symbolic link, unless something stands there.
  [[nodiscard]] Status link(const std::string& path, const std::string& target) const;
  void remove(const std::string& path) const;  // a file; absent is fine

 private:
  struct Place {
    Fd parent;
    std::string name;
  };
  [[nodiscard]] Result<Fd> open(const std::string& path, int flags, unsigned mode = 0) const;
  [[nodiscard]] Result<Place> place(const std::string& path) const;

  Fd directory_;
};

}  // namespace sandbox::guest
