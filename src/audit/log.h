#pragma once
// Reading the log of a sandbox, running or gone: DIR/decisions.1.jsonl, then DIR/decisions.jsonl.
//
// The reader trusts nothing in it: a line that is no record (a crash's half line, an edit) is
// counted and passed over.

#include <functional>
#include <string>

#include "audit/record.h"
#include "base/result.h"

namespace sandbox::audit {

struct LogFilter {
  bool denied_only = false;  // denials, would-be denials, and what tells of lost records
  size_t tail = 0;           // the last N that pass; 0: all
};

struct LogSummary {
  uint64_t records = 0;  // that passed the filter
  uint64_t damaged = 0;  // lines that are no record
  bool ended = false;    // the log was closed in order
};

using LogCallback = std::function<bool(const LogEntry&)>;  // false: stop

// What is there now. kNotFound when there is no log.
Result<LogSummary> read_log(const std::string& dir, const LogFilter& filter,
                            const LogCallback& call);
// The same, then what is added, until the log ends in order, the callback stops or `still_wanted`
// says no (asked about once a second). Waits for a log that is not there yet.
Result<LogSummary> follow_log(const std::string& dir, const LogFilter& filter,
                              const LogCallback& call, const std::function<bool()>& still_wanted);

// "2026-08-26 07:38:15  deny  dns www.example.org  no-allow-rule  #12", local time, control bytes
// escaped. The number is the seq that `policy explain` takes.
std::string log_line(const LogEntry& entry);
// "allow tcp 192.0.2.1:443 allow-rule www.example.org", for the end of a run.
std::string short_line(const Record& record);

}  // namespace sandbox::audit
