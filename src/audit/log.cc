#include "audit/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <thread>

#include "audit/log_file.h"
#include "base/fd.h"

namespace sandbox::audit {

namespace {

constexpr size_t kLongestLine = kMaxLineBytes + 1;
constexpr size_t kChunk = 64 * 1024;
constexpr auto kPollInterval = std::chrono::milliseconds(100);
constexpr int kPollsPerQuestion = 10;

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileId&, const FileId&) = default;
};

FileId id_of(const struct stat& st) {
  return {st.st_dev, st.st_ino};
}

FileId id_of_path(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? id_of(st) : FileId{};
}

// Whole lines of a file that may still grow. A line longer than any record is given as an empty
// one.
class LineReader {
 public:
  explicit LineReader(Fd fd) : fd_(std::move(fd)) {
    struct stat st {};
    if (::fstat(fd_.get(), &st) == 0) id_ = id_of(st);
  }

  // False: no whole line now.
  bool next(std::string& line) {
    for (;;) {
      const size_t end = buffer_.find('\n', searched_);
      if (end != std::string::npos) return take(end, line);
      searched_ = buffer_.size();
      if (buffer_.size() > kLongestLine) skip();
      if (!fill()) return false;
    }
  }

  [[nodiscard]] bool has_half_line() const { return skipping_ || !buffer_.empty(); }
  [[nodiscard]] const FileId& id() const { return id_; }

 private:
  bool take(size_t end, std::string& line) {
    line = skipping_ ? std::string() : buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    searched_ = 0;
    skipping_ = false;
    return true;
  }

  void skip() {
    skipping_ = true;
    buffer_.clear();
    searched_ = 0;
  }

  bool fill() {
    const size_t before = buffer_.size();
    buffer_.resize(before + kChunk);
    ssize_t got = 0;
    do {
      got = ::read(fd_.get(), buffer_.data() + before, kChunk);
    } while (got < 0 && errno == EINTR);
    buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return got > 0;
  }

  Fd fd_;
  FileId id_;
  std::string buffer_;
  size_t searched_ = 0;
  bool skipping_ = false;
};

bool passes(const LogFilter& filter, const Record& record) {
  if (!filter.denied_only) return true;
  switch (record.kind) {
    case Kind::kLost:
    case Kind::kMalformed:
      return true;
    case Kind::kDecision:
    case Kind::kSummary:
      return record.verdict == Outcome::kDeny || record.verdict == Outcome::kWouldDeny;
    case Kind::kClose:
    case Kind::kNote:
    case Kind::kEnd:
      break;
  }
  return false;
}

// Both files in order, then what is added to them.
class LogReader {
 public:
  LogReader(const std::string& dir, const LogFilter& filter, const LogCallback& call)
      : current_path_(dir + "/" + kLogName),
        older_path_(dir + "/" + kOlderLogName),
        filter_(filter),
        call_(call) {}

  // Everything there is; false when there is no log yet.
  Result<bool> start() {
    // A rotation between the two opens would hide a file: then the older one changed, and both are
    // opened again.
    for (;;) {
      const FileId before = id_of_path(older_path_);
      Fd older(::open(older_path_.c_str(), O_RDONLY | O_CLOEXEC));
      Fd current(::open(current_path_.c_str(), O_RDONLY | O_CLOEXEC));
      const int error = errno;
      if (id_of_path(older_path_) != before) continue;
      if (!current && error != ENOENT) return fail_errno(error, current_path_);
      if (!current && !older) return false;
      hold_back_ = filter_.tail > 0;
      if (older) read_finished(LineReader(std::move(older)));
      if (current) current_.emplace(std::move(current));
      read_current();
      release_tail();
      return true;
    }
  }

  // What was added since; follows a rotation.
  void poll() {
    read_current();
    const FileId there = id_of_path(current_path_);
    if (stopped_ || there == FileId{} || (current_ && current_->id() == there)) return;
    if (current_) {
      read_current();  // what was written between the last read and the rename
      finish_half_line(*current_);
      const FileId left = current_->id();
      current_.reset();
      if (id_of_path(older_path_) != left) reread_older();
    }
    Fd next(::open(current_path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (next) current_.emplace(std::move(next));
    read_current();
  }

  // For a log that is not followed: what never became a line.
  void finish() {
    if (current_) finish_half_line(*current_);
  }

  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] const LogSummary& summary() const { return summary_; }

 private:
  void read_finished(LineReader reader) {
    read_lines(reader);
    finish_half_line(reader);
  }
  void read_current() {
    if (current_) read_lines(*current_);
  }
  // More than one rotation passed between two polls.
  void reread_older() {
    Fd older(::open(older_path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (older) read_finished(LineReader(std::move(older)));
  }

  void read_lines(LineReader& reader) {
    std::string line;
    while (!stopped_ && reader.next(line)) accept(line);
  }

  void accept(const std::string& line) {
    auto entry = parse_log_line(line);
    if (!entry) {
      ++summary_.damaged;
      return;
    }
    summary_.ended = entry->record.kind == Kind::kEnd;
    if (!passes(filter_, entry->record)) return;
    if (!hold_back_) return give(*entry);
    held_.push_back(std::move(*entry));
    if (held_.size() > filter_.tail) held_.pop_front();
  }

  void give(const LogEntry& entry) {
    ++summary_.records;
    stopped_ = !call_(entry);
  }

  void release_tail() {
    hold_back_ = false;
    for (const LogEntry& entry : held_) {
      if (stopped_) break;
      give(entry);
    }
    held_.clear();
  }

  void finish_half_line(const LineReader& reader) {
    if (reader.has_half_line()) ++summary_.damaged;
  }

  std::string current_path_;
  std::string older_path_;
  LogFilter filter_;
  const LogCallback& call_;
  std::optional<LineReader> current_;
  std::deque<LogEntry> held_;
  LogSummary summary_;
  bool hold_back_ = false;
  bool stopped_ = false;
};

}  // namespace

Result<LogSummary> read_log(const std::string& dir, const LogFilter& filter,
                            const LogCallback& call) {
  LogReader reader(dir, filter, call);
  ASSIGN(const bool there, reader.start());
  if (!there) return fail(Code::kNotFound, "there is no log in {}", dir);
  reader.finish();
  return reader.summary();
}

Result<LogSummary> follow_log(const std::string& dir, const LogFilter& filter,
                              const LogCallback& call, const std::function<bool()>& still_wanted) {
  LogReader reader(dir, filter, call);
  bool there = false;
  for (int polls = 0;; ++polls) {
    if (there) {
      reader.poll();
    } else {
      ASSIGN(there, reader.start());
    }
    if (reader.stopped() || reader.summary().ended) return reader.summary();
    if (polls % kPollsPerQuestion == 0 && !still_wanted()) {
      if (there) reader.poll();  // what came between the poll and the answer
      return reader.summary();
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace sandbox::audit
