#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "audit/log.h"
#include "base/clock.h"
#include "base/text.h"

namespace sandbox::audit {

namespace {

std::string joined(const std::vector<std::string>& list, std::string_view separator) {
  return fmt::format("{}", fmt::join(list, separator));
}

std::string endpoint(const Record& record) {
  if (!record.address) return {};
  std::string shown = record.address->text();
  if (record.port == 0) return shown;
  return record.address->is_v4() ? fmt::format("{}:{}", shown, record.port)
                                 : fmt::format("[{}]:{}", shown, record.port);
}

// dns: the name asked. tls, http: the name shown, and where. Else where.
std::string target(const Record& record) {
  if (record.proto == "dns") return record.destination();
  const std::string& shown = record.sni.empty() ? record.host : record.sni;
  std::string where = endpoint(record);
  if (shown.empty()) return where;
  return where.empty() ? shown : fmt::format("{} at {}", shown, where);
}

// The other reasons say all there is to say; what was allowed says which way it goes.
bool needs_text(const Record& record) {
  static constexpr std::array<std::string_view, 6> kReasons = {
      "allow-rule", "rebinding", "sni-unreadable", "ech", "flow-limit", "upstream-proxy"};
  return !record.text.empty() &&
         std::find(kReasons.begin(), kReasons.end(), record.reason) != kReasons.end();
}

std::string decision(const Record& record) {
  std::string line = fmt::format("{}  {} {}  {}", text(record.verdict), record.proto,
                                 target(record), record.reason);
  if (record.reason == "deny-rule" && !record.rule.empty()) line += fmt::format(" {}", record.rule);
  if (record.proto != "dns" && !record.names.empty())
    line += fmt::format("  [{}]", joined(record.names, ", "));
  if (needs_text(record)) line += fmt::format("  {}", record.text);
  if (record.count > 1) line += fmt::format("  ({} more)", record.count);
  return line;
}

std::string traffic(const Record& record) {
  if (!record.traffic) return "no traffic known";
  return fmt::format("{} out, {} in", format_size(record.traffic->out),
                     format_size(record.traffic->in));
}

std::string close(const Record& record) {
  std::string line = fmt::format("close  {} {}  {}", record.proto, target(record), traffic(record));
  if (!record.names.empty()) line += fmt::format("  [{}]", joined(record.names, ", "));
  if (!record.text.empty()) line += fmt::format("  {}", record.text);
  return line;
}

std::string summary(const Record& record) {
  const std::string_view verdict =
      record.verdict == Outcome::kNone ? "close" : text(record.verdict);
  std::string line =
      fmt::format("{}  {} {} more in this second  {}", verdict, record.proto, record.count,
                  record.verdict == Outcome::kNone ? traffic(record) : record.reason);
  if (!record.destinations.empty())
    line += fmt::format("  [{}]", joined(record.destinations, ", "));
  return line;
}

std::string said(const LogEntry& entry) {
  const Record& record = entry.record;
  switch (record.kind) {
    case Kind::kDecision:
      return fmt::format("{}  #{}", decision(record), entry.seq);
    case Kind::kClose:
      return close(record);
    case Kind::kSummary:
      return summary(record);
    case Kind::kLost:
      return fmt::format("lost  {} records: {}", record.count, record.text);
    case Kind::kMalformed:
      return fmt::format("malformed  {} messages of {}: {}", record.count, entry.source,
                         record.text);
    case Kind::kNote:
      return fmt::format("note  {}", record.text);
    case Kind::kEnd:
      return "end";
  }
  return {};
}

}  // namespace

std::string log_line(const LogEntry& entry) {
  return escape_terminal(fmt::format("{}  {}", format_local(entry.time_ns), said(entry)));
}

std::string short_line(const Record& record) {
  std::string line =
      fmt::format("{} {} {} {}", text(record.verdict), record.proto, target(record), record.reason);
  if (record.proto != "dns" && !record.names.empty())
    line += fmt::format(" {}", joined(record.names, ","));
  if (record.count > 1) line += fmt::format(" ({} more)", record.count);
  return escape_terminal(line);
}

}  // namespace sandbox::audit
