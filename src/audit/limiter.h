#pragma once
// Limiter: keeps a guest from flooding the record, without losing what matters. Pure; time comes
// in.
//
//   1. Equal denials (kind, proto, destination, port, reason) within 10 s of the first: the first
//      passes at once, the others become one record at the end of the 10 s whose count says how
//      many they were.
//   2. More than 500 records in a second: the rest of that second becomes one summary for each
//      (kind, proto, verdict, reason), with their number and the sum of their traffic.
//   3. First contact with a destination is never dropped: where 2. takes a record away, its
//      summary names every destination that was not seen before.
//
// Memory is bounded: 4096 open denials, 8192 remembered destinations, 128 destinations in a summary
// before it is sent early, 64 kinds of summaries. What falls out of the remembered destinations
// counts as new when it comes again.

#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "audit/record.h"
#include "base/clock.h"

namespace sandbox::audit {

class Limiter {
 public:
  static constexpr Duration kMergeWindow = std::chrono::seconds(10);
  static constexpr size_t kPerSecond = 500;
  static constexpr size_t kMaxOpen = 4096;
  static constexpr size_t kMaxKnown = 8192;
  static constexpr size_t kMaxListed = 128;
  static constexpr size_t kMaxSummaries = 64;

  // What is to be written now, in order, is appended to `out`.
  void offer(Record record, Instant now, std::vector<Record>& out);
  // Windows and seconds that are over.
  void expire(Instant now, std::vector<Record>& out);
  // When expire() has something to do next; Instant::never() if nothing waits.
  [[nodiscard]] Instant next_deadline() const;
  // Everything that still waits, before the end.
  void finish(std::vector<Record>& out);

 private:
  struct Open {
    Record record;
    uint64_t further = 0;
    Instant until;
  };
  using OpenList = std::list<std::pair<std::string, Open>>;  // in order of `until`

  bool merge(const Record& record, Instant now, std::vector<Record>& out);
  void close_front(std::vector<Record>& out);
  void admit(Record record, bool first_contact, std::vector<Record>& out);
  void summarise(const Record& record, bool first_contact, std::vector<Record>& out);
  void close_second(std::vector<Record>& out);
  void close_summary(std::map<std::string, Record>::iterator at, std::vector<Record>& out);
  bool remember(const std::string& contact);  // true: not seen before

  OpenList open_;
  std::unordered_map<std::string, OpenList::iterator> open_by_key_;
  std::list<std::string> known_order_;  // front: seen last
  std::unordered_map<std::string, std::list<std::string>::iterator> known_;
  std::map<std::string, Record> summaries_;
  Instant second_start_{};
  size_t in_second_ = 0;
};

}  // namespace sandbox::audit
