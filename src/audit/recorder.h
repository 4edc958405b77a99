#pragma once
// Recorder: what the recorder process does with messages, without its sockets. A message that is no
// record is counted for its source, and the count becomes a record about once a second: a source
// that sends rubbish fills no disk with it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "audit/log_file.h"
#include "audit/record.h"
#include "base/result.h"

namespace sandbox::audit {

class Recorder {
 public:
  Recorder(LogFile log, std::vector<std::string> sources);

  // Every error of these is the disk's, and final.
  Status take(size_t source, std::string_view message, int64_t time_ns);
  // A message that arrived cut off: longer than any record.
  void oversized(size_t source) { note_malformed(source, "longer than a record may be"); }
  // What was taken reaches the file; call after each round.
  Status flush() { return log_.flush(); }
  // Reports what was malformed since.
  Status report(int64_t time_ns);
  [[nodiscard]] bool has_report() const { return waiting_; }
  // The last record of an orderly end.
  Status end(int64_t time_ns);

  [[nodiscard]] uint64_t records() const { return records_; }
  [[nodiscard]] uint64_t malformed() const { return malformed_; }

 private:
  struct Source {
    std::string name;
    uint64_t malformed = 0;  // not yet reported
    std::string complaint;   // about the first of them
  };
  void note_malformed(size_t source, std::string complaint);

  LogFile log_;
  std::vector<Source> sources_;
  uint64_t records_ = 0;
  uint64_t malformed_ = 0;
  bool waiting_ = false;
};

}  // namespace sandbox::audit
