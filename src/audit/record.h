#pragma once
// Record: what one audit record says, before the recorder adds seq, time and source. JSON is its
// only outside form.
//
//   sink.write({.proto = "dns", .verdict = Outcome::kDeny, .reason = "no-allow-rule",
//               .names = {"www.example.org"}});
//   sink.write({.proto = "tcp", .verdict = Outcome::kAllow, .reason = "allow-rule",
//               .rule = "*.example.org", .address = address, .port = 443,
//               .names = {"www.example.org"}});
//   sink.write({.kind = Kind::kClose, .proto = "tcp", .address = address, .port = 443,
//               .traffic = Traffic{1200, 56000}});
//
// JSON members, absent where empty: kind, proto, verdict, reason, rule, address, port, names, sni,
// host, bytes {out, in}, count, destinations, text. kind is absent for decisions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "base/result.h"

namespace sandbox::audit {

enum class Kind {
  kDecision,   // a gate decided
  kClose,      // an allowed flow ended; carries traffic
  kSummary,    // count records of one kind, proto, verdict and reason that the limit kept out;
               // destinations seen first
  kLost,       // count records were lost, text says where
  kMalformed,  // count records of a source were none
  kNote,       // something else worth keeping, in text
  kEnd,        // the log was closed in order
};
enum class Outcome { kNone, kAllow, kDeny, kWouldDeny };

std::string_view text(Kind kind);
std::string_view text(Outcome outcome);

struct Traffic {
  uint64_t out = 0;  // bytes from the sandbox
  uint64_t in = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

struct Record {
  Kind kind = Kind::kDecision;
  std::string proto = {};  // "dns", "tcp", "udp", "icmp", "tls", "http"
  Outcome verdict = Outcome::kNone;
  std::string reason = {};
  std::string rule = {};
  std::optional<IpAddress> address = {};
  uint16_t port = 0;
  std::vector<std::string> names = {};  // vouched for the address; for dns the name asked
  std::string sni = {};
  std::string host = {};
  std::optional<Traffic> traffic = {};
  uint64_t count = 1;  // further equal denials, or what a summary stands for
  std::vector<std::string> destinations = {};  // of a summary: those never seen before
  std::string text = {};                       // for people, beyond the reason; mostly empty
  friend bool operator==(const Record&, const Record&) = default;

  // Where this was going: the name it showed, or was asked for, or else the address.
  [[nodiscard]] std::string destination() const;
};

inline constexpr size_t kMaxRecordBytes = 64 * 1024;  // one message
inline constexpr size_t kMaxLineBytes =
    6 * kMaxRecordBytes + 512;  // the same in the log: stamped, all ASCII

// One JSON object in ASCII, no newline, at most kMaxRecordBytes: bytes that are not UTF-8 are
// replaced, overlong texts and lists are cut.
std::string to_json(const Record& record);
// kProtocol: not a JSON object, a member of the wrong type, nested deeper than 8. Unknown members
// are passed over.
Result<Record> from_json(std::string_view text);

// The line of the log for a message of a source, in ASCII, without newline. Members this version
// does not know are kept. kProtocol where from_json() says so, above kMaxRecordBytes, and where the
// message claims a seq, time or source of its own.
Result<std::string> stamp(std::string_view message, uint64_t seq, int64_t time_ns,
                          std::string_view source);

// What the log holds: a record and its stamp.
struct LogEntry {
  uint64_t seq = 0;
  int64_t time_ns = 0;  // wall clock, UTC
  std::string source;
  Record record;
  std::string line;  // the JSON as it stands in the log
};
Result<LogEntry> parse_log_line(std::string_view line);

}  // namespace sandbox::audit
