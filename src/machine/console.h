#pragma once
// What the guest prints on its serial console, kept on the host in bounded space (contract V6):
// console.log, and console.1.log before it, each at most `limit` bytes. Guest bytes, so they are
// escaped before they reach a terminal, not here.

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

class ConsoleLog {
 public:
  static constexpr uint64_t kLimit = uint64_t{32} << 20;
  // Writes `directory`/console.log; an existing one is continued.
  static Result<ConsoleLog> open(const std::string& directory, uint64_t limit = kLimit);

  Status append(std::string_view bytes);
  [[nodiscard]] uint64_t lost_bytes() const { return lost_; }  // dropped with replaced files
  [[nodiscard]] std::string tail() const { return tail_; }     // the last 4 KiB

 private:
  ConsoleLog(std::string directory, Fd fd, uint64_t size, uint64_t limit)
      : directory_(std::move(directory)), fd_(std::move(fd)), size_(size), limit_(limit) {}
  Status rotate();
  std::string directory_;
  Fd fd_;
  uint64_t size_;
  uint64_t limit_;
  uint64_t lost_ = 0;
  std::string tail_;
};

}  // namespace sandbox
