#pragma once
// LogFile: the two files of a log, written. decisions.jsonl grows to the limit, then becomes
// decisions.1.jsonl in place of the one before, so at most two limits of disk are used. Sequence
// numbers go on where an earlier run of the same sandbox stopped.

#include <cstdint>
#include <string>
#include <string_view>

#include "audit/record.h"
#include "base/fd.h"
#include "base/result.h"

namespace sandbox::audit {

inline constexpr const char* kLogName = "decisions.jsonl";
inline constexpr const char* kOlderLogName = "decisions.1.jsonl";

class LogFile {
 public:
  // `directory` is borrowed. A half line left by a crash is ended, so that the next record stands
  // on its own.
  static Result<LogFile> open(int directory, uint64_t limit_bytes);

  // Numbers and writes one record of `source`. kProtocol: the message is no record, nothing was
  // written. kIo: the disk did not take it; the log cannot go on.
  Status append(std::string_view message, int64_t time_ns, std::string_view source);
  // Buffered lines reach the file.
  Status flush();
  Status sync();

  [[nodiscard]] uint64_t next_seq() const { return next_seq_; }

 private:
  LogFile(int directory, uint64_t limit) : directory_(directory), limit_(limit) {}
  Status open_current();
  Status adopt();
  Status rotate(int64_t time_ns);

  int directory_;
  uint64_t limit_;
  Fd file_;
  uint64_t size_ = 0;  // of the file, buffer included
  std::string buffer_;
  uint64_t next_seq_ = 1;
  uint64_t first_in_file_ = 1;   // sequence number at which decisions.jsonl begins
  uint64_t first_in_older_ = 0;  // the same of decisions.1.jsonl; 0: there is none
};

}  // namespace sandbox::audit
