// fuzz-libs: sandbox_audit
// What a hostile source may send to the recorder, and what an edited log may hold. Lines are
// messages; an accepted one becomes a line of the log that reads back.

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "audit/limiter.h"
#include "audit/log.h"
#include "audit/record.h"
#include "base/text.h"

namespace {

using namespace sandbox;
using namespace sandbox::audit;

void require(bool holds) {
  if (!holds) std::abort();
}

void require_printable(std::string_view text) {
  for (const char c : text) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
}

void check_stamp(std::string_view message) {
  const auto line = stamp(message, 7, 1'787'000'000'000'000'000, "files");
  require(line.has_value() || line.error().code == Code::kProtocol);
  if (!line) return;
  require(line->size() <= kMaxLineBytes);
  require_printable(*line);
  const auto entry = parse_log_line(*line);
  require(entry.has_value() && entry->seq == 7 && entry->source == "files");
  require_printable(log_line(*entry));
}

void check_record(std::string_view message, Limiter& limiter, Instant now,
                  std::vector<Record>& out) {
  const auto record = from_json(message);
  if (!record) return;
  const std::string json = to_json(*record);
  require(json.size() <= kMaxRecordBytes);
  require(from_json(json).has_value());
  require_printable(short_line(*record));
  limiter.offer(*record, now, out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Limiter limiter;
  Instant now{std::chrono::seconds(1)};
  std::vector<Record> out;
  for (const auto line : split(text, '\n')) {
    check_stamp(line);
    check_record(line, limiter, now, out);
    const auto entry = parse_log_line(line);
    if (entry) require_printable(log_line(*entry));
    now = now + std::chrono::milliseconds(300);
  }
  limiter.finish(out);
  for (const Record& record : out) require(to_json(record).size() <= kMaxRecordBytes);
  return 0;
}
