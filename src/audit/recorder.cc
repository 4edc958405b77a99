#include "audit/recorder.h"

namespace sandbox::audit {

Recorder::Recorder(LogFile log, std::vector<std::string> sources) : log_(std::move(log)) {
  for (std::string& name : sources) sources_.push_back({std::move(name), 0, {}});
}

Status Recorder::take(size_t source, std::string_view message, int64_t time_ns) {
  auto taken = log_.append(message, time_ns, sources_[source].name);
  if (taken) {
    ++records_;
    return {};
  }
  if (taken.error().code != Code::kProtocol) return fail(std::move(taken).error());
  note_malformed(source, std::move(taken).error().message);
  return {};
}

void Recorder::note_malformed(size_t source, std::string complaint) {
  Source& from = sources_[source];
  if (from.malformed++ == 0) from.complaint = std::move(complaint);
  ++malformed_;
  waiting_ = true;
}

Status Recorder::report(int64_t time_ns) {
  for (Source& source : sources_) {
    if (source.malformed == 0) continue;
    Record record;
    record.kind = Kind::kMalformed;
    record.count = source.malformed;
    record.text = source.complaint;
    source.malformed = 0;
    TRY(log_.append(to_json(record), time_ns, source.name));
  }
  waiting_ = false;
  return {};
}

Status Recorder::end(int64_t time_ns) {
  TRY(report(time_ns));
  Record record;
  record.kind = Kind::kEnd;
  TRY(log_.append(to_json(record), time_ns, "recorder"));
  return log_.sync();
}

}  // namespace sandbox::audit
