#include "machine/console.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox {

namespace {

constexpr size_t kTail = 4096;

std::string current(const std::string& directory) {
  return directory + "/console.log";
}
std::string previous(const std::string& directory) {
  return directory + "/console.1.log";
}

}  // namespace

Result<ConsoleLog> ConsoleLog::open(const std::string& directory, uint64_t limit) {
  ASSIGN(Fd fd, open_file(current(directory), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW));
  struct stat st {};
  if (::fstat(fd.get(), &st) < 0) return fail_errno(errno, "fstat console.log");
  return ConsoleLog(directory, std::move(fd), static_cast<uint64_t>(st.st_size), limit);
}

Status ConsoleLog::append(std::string_view bytes) {
  tail_.append(bytes.size() > kTail ? bytes.substr(bytes.size() - kTail) : bytes);
  if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
  while (!bytes.empty()) {
    if (size_ >= limit_) TRY(rotate());
    const std::string_view part = bytes.substr(0, limit_ - size_);
    TRY(write_all(fd_.get(), part));
    size_ += part.size();
    bytes.remove_prefix(part.size());
  }
  return {};
}

Status ConsoleLog::rotate() {
  struct stat st {};
  if (::stat(previous(directory_).c_str(), &st) == 0) lost_ += static_cast<uint64_t>(st.st_size);
  if (::rename(current(directory_).c_str(), previous(directory_).c_str()) < 0)
    return fail_errno(errno, "rename console.log");
  ASSIGN(fd_, open_file(current(directory_), O_WRONLY | O_CREAT | O_EXCL | O_APPEND));
  size_ = 0;
  return {};
}

}  // namespace sandbox
