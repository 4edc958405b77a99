#include "audit/limiter.h"

#include <fmt/format.h>

#include <algorithm>

namespace sandbox::audit {

namespace {

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr size_t kMaxContact = 300;  // a name of 253 and a port fit; longer is cut

// "www.example.org", "192.0.2.1:443"
std::string contact_of(const Record& record) {
  std::string contact = record.destination();
  if (!contact.empty() && record.port != 0) contact += fmt::format(":{}", record.port);
  contact.resize(std::min(contact.size(), kMaxContact));
  return contact;
}

std::string merge_key(const Record& record) {
  return fmt::format("{}|{}|{}|{}", record.proto, text(record.verdict), record.reason,
                     contact_of(record));
}

std::string summary_key(const Record& record) {
  return fmt::format("{}|{}|{}|{}", text(record.kind), record.proto, text(record.verdict),
                     record.reason);
}

bool is_denial(const Record& record) {
  return record.kind == Kind::kDecision &&
         (record.verdict == Outcome::kDeny || record.verdict == Outcome::kWouldDeny);
}

}  // namespace

void Limiter::offer(Record record, Instant now, std::vector<Record>& out) {
  expire(now, out);
  const std::string contact = record.kind == Kind::kDecision ? contact_of(record) : std::string();
  const bool first = !contact.empty() && remember(contact);
  if (is_denial(record) && merge(record, now, out)) return;
  admit(std::move(record), first, out);
}

bool Limiter::remember(const std::string& contact) {
  if (const auto known = known_.find(contact); known != known_.end()) {
    known_order_.splice(known_order_.begin(), known_order_, known->second);
    return false;
  }
  if (known_.size() == kMaxKnown) {
    known_.erase(known_order_.back());
    known_order_.pop_back();
  }
  known_order_.push_front(contact);
  known_.emplace(contact, known_order_.begin());
  return true;
}

// True: counted into a window that is open. False: the record opened one and passes.
bool Limiter::merge(const Record& record, Instant now, std::vector<Record>& out) {
  std::string key = merge_key(record);
  if (const auto open = open_by_key_.find(key); open != open_by_key_.end()) {
    open->second->second.further += record.count;
    return true;
  }
  if (open_.size() == kMaxOpen) close_front(out);
  open_.emplace_back(key, Open{record, 0, now + kMergeWindow});
  open_by_key_.emplace(std::move(key), std::prev(open_.end()));
  return false;
}

void Limiter::close_front(std::vector<Record>& out) {
  auto [key, open] = std::move(open_.front());
  open_.pop_front();
  open_by_key_.erase(key);
  if (open.further == 0) return;
  open.record.count = open.further;
  admit(std::move(open.record), false, out);
}

// In the second that expire() began.
void Limiter::admit(Record record, bool first_contact, std::vector<Record>& out) {
  if (in_second_ == kPerSecond) return summarise(record, first_contact, out);
  ++in_second_;
  out.push_back(std::move(record));
}

void Limiter::summarise(const Record& record, bool first_contact, std::vector<Record>& out) {
  const std::string key = summary_key(record);
  auto at = summaries_.find(key);
  if (at == summaries_.end()) {
    if (summaries_.size() == kMaxSummaries) close_summary(summaries_.begin(), out);
    Record summary;
    summary.kind = Kind::kSummary;
    summary.proto = record.proto;
    summary.verdict = record.verdict;
    summary.reason = record.reason;
    summary.count = 0;
    at = summaries_.emplace(key, std::move(summary)).first;
  }
  Record& summary = at->second;
  summary.count += record.count;
  if (record.traffic) {
    Traffic& sum = summary.traffic ? *summary.traffic : summary.traffic.emplace();
    sum.out += record.traffic->out;
    sum.in += record.traffic->in;
  }
  if (first_contact) summary.destinations.push_back(contact_of(record));
  if (summary.destinations.size() == kMaxListed) close_summary(at, out);
}

void Limiter::close_summary(std::map<std::string, Record>::iterator at, std::vector<Record>& out) {
  out.push_back(std::move(at->second));
  summaries_.erase(at);
}

void Limiter::close_second(std::vector<Record>& out) {
  while (!summaries_.empty()) close_summary(summaries_.begin(), out);
  in_second_ = 0;
}

void Limiter::expire(Instant now, std::vector<Record>& out) {
  if (now - second_start_ >= kSecond) {
    close_second(out);
    second_start_ = now;
  }
  while (!open_.empty() && open_.front().second.until <= now) close_front(out);
}

Instant Limiter::next_deadline() const {
  Instant next = Instant::never();
  if (!open_.empty()) next = open_.front().second.until;
  if (!summaries_.empty()) next = std::min(next, second_start_ + kSecond);
  return next;
}

void Limiter::finish(std::vector<Record>& out) {
  close_second(out);
  while (!open_.empty()) {
    Open open = std::move(open_.front().second);
    open_.pop_front();
    if (open.further == 0) continue;
    open.record.count = open.further;
    out.push_back(std::move(open.record));
  }
  open_by_key_.clear();
}

}  // namespace sandbox::audit
