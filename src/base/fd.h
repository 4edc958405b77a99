#pragma once
// Fd owns one file descriptor. A raw int in a signature borrows, an Fd takes or gives ownership.

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace sandbox {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset();

  // A new descriptor for the same open file description, close-on-exec.
  [[nodiscard]] Result<Fd> duplicate() const;

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC added; the error names the path.
Result<Fd> open_file(const std::string& path, int flags, unsigned mode = 0600);
// A memfd holding `content`, position 0; for handing configuration or blobs to a child.
Result<Fd> memory_file(const std::string& name, std::string_view content);

Status set_nonblocking(int fd, bool on);
Status set_cloexec(int fd, bool on);

// Reads until end of file; fails above `limit` bytes.
Result<std::string> read_all(int fd, size_t limit);
// Writes everything to a blocking descriptor.
Status write_all(int fd, std::string_view bytes);

}  // namespace sandbox
