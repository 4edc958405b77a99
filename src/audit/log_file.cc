#include "audit/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <ranges>
#include <vector>

#include "base/text.h"

namespace sandbox::audit {

namespace {

constexpr size_t kLongestLine = kMaxLineBytes + 1;
constexpr size_t kFlushAt = 256 * 1024;

Result<std::string> read_at(int fd, uint64_t offset, size_t length) {
  std::string out(length, '\0');
  size_t done = 0;
  while (done < length) {
    const ssize_t got =
        ::pread(fd, out.data() + done, length - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "reading the log");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out.resize(done);
  return out;
}

struct Extent {
  uint64_t first = 0;  // 0: no record was found
  uint64_t last = 0;
  uint64_t size = 0;
  bool half_line = false;
};

// The first and the last number in a file, from its two ends.
Result<Extent> extent_of(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) < 0) return fail_errno(errno, "fstat of the log");
  Extent extent;
  extent.size = static_cast<uint64_t>(st.st_size);
  if (extent.size == 0) return extent;
  const size_t span = std::min<uint64_t>(extent.size, 2 * kLongestLine);
  ASSIGN(const std::string head, read_at(fd, 0, span));
  ASSIGN(const std::string tail, read_at(fd, extent.size - span, span));
  extent.half_line = !tail.ends_with('\n');
  for (const std::string_view line : split(head, '\n')) {
    const auto entry = parse_log_line(line);
    if (!entry) continue;
    extent.first = entry->seq;
    break;
  }
  const auto lines = split(tail, '\n');
  for (const std::string_view line : std::ranges::reverse_view(lines)) {
    const auto entry = parse_log_line(line);
    if (!entry) continue;
    extent.last = entry->seq;
    break;
  }
  return extent;
}

Status write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return fail_errno(errno, "writing the log");
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return {};
}

}  // namespace

Result<LogFile> LogFile::open(int directory, uint64_t limit_bytes) {
  LogFile log(directory, limit_bytes);
  TRY(log.open_current());
  TRY(log.adopt());
  return log;
}

Status LogFile::open_current() {
  file_ = Fd(
      ::openat(directory_, kLogName, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return fail_errno(errno, fmt::format("opening {}", kLogName));
  return {};
}

// Goes on from what an earlier run left.
Status LogFile::adopt() {
  ASSIGN(const Extent current, extent_of(file_.get()));
  Extent older;
  const Fd older_file(::openat(directory_, kOlderLogName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (older_file) {
    ASSIGN(older, extent_of(older_file.get()));
  }
  first_in_older_ = older.first;
  next_seq_ = std::max(current.last, older.last) + 1;
  first_in_file_ = current.first != 0 ? current.first : next_seq_;
  size_ = current.size;
  if (!current.half_line) return {};
  if (size_ == 0) return {};
  ++size_;
  return write_whole(file_.get(), "\n");
}

Status LogFile::append(std::string_view message, int64_t time_ns, std::string_view source) {
  ASSIGN(std::string line, stamp(message, next_seq_, time_ns, source));
  line += '\n';
  if (size_ > 0 && size_ + line.size() > limit_) {
    TRY(rotate(time_ns));
    ASSIGN(line, stamp(message, next_seq_, time_ns, source));
    line += '\n';
  }
  ++next_seq_;
  size_ += line.size();
  buffer_ += line;
  return buffer_.size() >= kFlushAt ? flush() : Status();
}

// The first record of the new file says what was given up for it.
Status LogFile::rotate(int64_t time_ns) {
  TRY(flush());
  const uint64_t lost = first_in_older_ == 0 ? 0 : first_in_file_ - first_in_older_;
  if (::renameat(directory_, kLogName, directory_, kOlderLogName) < 0)
    return fail_errno(errno, fmt::format("renaming {}", kLogName));
  TRY(open_current());
  first_in_older_ = first_in_file_;
  first_in_file_ = next_seq_;
  size_ = 0;
  if (lost == 0) return {};
  Record record;
  record.kind = Kind::kLost;
  record.count = lost;
  record.text = "older records, at the size limit of the log";
  ASSIGN(std::string line, stamp(to_json(record), next_seq_, time_ns, "recorder"));
  ++next_seq_;
  buffer_ = line + '\n';
  size_ = buffer_.size();
  return {};
}

Status LogFile::flush() {
  if (buffer_.empty()) return {};
  TRY(write_whole(file_.get(), buffer_));
  buffer_.clear();
  return {};
}

Status LogFile::sync() {
  TRY(flush());
  if (::fdatasync(file_.get()) < 0) return fail_errno(errno, "fdatasync of the log");
  return {};
}

}  // namespace sandbox::audit
