#include "audit/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace sandbox::audit {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxText = 2048;  // of one text
constexpr size_t kMaxName = 256;   // of one entry of a list
constexpr size_t kMaxNames = 64;
constexpr size_t kMaxDestinations = 128;
constexpr int kMaxDepth = 8;

constexpr std::array<std::pair<Kind, std::string_view>, 7> kKinds = {
    {{Kind::kDecision, "decision"},
     {Kind::kClose, "close"},
     {Kind::kSummary, "summary"},
     {Kind::kLost, "lost"},
     {Kind::kMalformed, "malformed"},
     {Kind::kNote, "note"},
     {Kind::kEnd, "end"}}};
constexpr std::array<std::pair<Outcome, std::string_view>, 4> kOutcomes = {
    {{Outcome::kNone, ""},
     {Outcome::kAllow, "allow"},
     {Outcome::kDeny, "deny"},
     {Outcome::kWouldDeny, "would-deny"}}};

template <class Table, class Key>
std::string_view text_of(const Table& table, Key key) {
  return std::find_if(table.begin(), table.end(), [&](const auto& e) { return e.first == key; })
      ->second;
}

void put(Json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text.substr(0, kMaxText);
}

void put(Json& object, const char* key, const std::vector<std::string>& list, size_t most) {
  if (list.empty()) return;
  Json& array = object[key] = Json::array();
  for (size_t i = 0; i < std::min(most, list.size()); ++i)
    array.push_back(list[i].substr(0, kMaxName));
}

std::string dump(const Json& object) {
  return object.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// Depth of nesting, counted before parsing: what walks a parsed value does so recursively.
int nesting(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if (c == '}' || c == ']') --depth;
  }
  return deepest;
}

// Reads members of one object; the first wrong type is kept.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}

  void text(const char* key, std::string& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return wrong(key);
    out = value->get<std::string>();
  }

  template <class Table, class Value>
  void word(const char* key, const Table& table, Value& out) {
    std::string word;
    text(key, word);
    const auto at =
        std::find_if(table.begin(), table.end(), [&](const auto& e) { return e.second == word; });
    if (word.empty()) return;
    if (at == table.end()) return wrong(key);
    out = at->first;
  }

  template <class Number>
  void number(const Json& object, const char* key, Number& out) {
    const auto at = object.find(key);
    if (at == object.end()) return;
    if (!at->is_number_unsigned() ||
        at->template get<uint64_t>() > std::numeric_limits<Number>::max())
      return wrong(key);
    out = at->template get<Number>();
  }

  void list(const char* key, std::vector<std::string>& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return wrong(key);
    for (const Json& entry : *value) {
      if (!entry.is_string()) return wrong(key);
      out.push_back(entry.get<std::string>());
    }
  }

  void address(const char* key, std::optional<IpAddress>& out) {
    std::string shown;
    text(key, shown);
    if (shown.empty()) return;
    out = IpAddress::parse(shown);
    if (!out) wrong(key);
  }

  void traffic(const char* key, std::optional<Traffic>& out) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) return wrong(key);
    out.emplace();
    number(*value, "out", out->out);
    number(*value, "in", out->in);
  }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }

 private:
  const Json* find(const char* key) {
    const auto at = object_.find(key);
    return at == object_.end() ? nullptr : &*at;
  }
  void wrong(const char* key) {
    if (complaint_.empty()) complaint_ = fmt::format("member '{}' is not what it should be", key);
  }

  const Json& object_;
  std::string complaint_;
};

Result<Json> parse_object(std::string_view text, size_t most) {
  if (text.size() > most) return fail(Code::kProtocol, "longer than {} bytes", most);
  if (nesting(text) > kMaxDepth)
    return fail(Code::kProtocol, "a record nested deeper than {}", kMaxDepth);
  Json object = Json::parse(text, nullptr, false);
  if (object.is_discarded()) return fail(Code::kProtocol, "not JSON");
  if (!object.is_object()) return fail(Code::kProtocol, "not a JSON object");
  return object;
}

Result<Record> read_record(const Json& object) {
  Record record;
  Reader reader(object);
  reader.word("kind", kKinds, record.kind);
  reader.text("proto", record.proto);
  reader.word("verdict", kOutcomes, record.verdict);
  reader.text("reason", record.reason);
  reader.text("rule", record.rule);
  reader.address("address", record.address);
  reader.number(object, "port", record.port);
  reader.list("names", record.names);
  reader.text("sni", record.sni);
  reader.text("host", record.host);
  reader.traffic("bytes", record.traffic);
  reader.number(object, "count", record.count);
  reader.list("destinations", record.destinations);
  reader.text("text", record.text);
  if (!reader.complaint().empty()) return fail(Code::kProtocol, "{}", reader.complaint());
  return record;
}

}  // namespace

std::string_view text(Kind kind) {
  return text_of(kKinds, kind);
}
std::string_view text(Outcome outcome) {
  return text_of(kOutcomes, outcome);
}

std::string Record::destination() const {
  if (!sni.empty()) return sni;
  if (!host.empty()) return host;
  if (proto == "dns" && !names.empty()) return names.front();
  return address ? address->text() : std::string();
}

std::string to_json(const Record& record) {
  Json object = Json::object();
  if (record.kind != Kind::kDecision) object["kind"] = text(record.kind);
  put(object, "proto", record.proto);
  if (record.verdict != Outcome::kNone) object["verdict"] = text(record.verdict);
  put(object, "reason", record.reason);
  put(object, "rule", record.rule);
  if (record.address) object["address"] = record.address->text();
  if (record.port != 0) object["port"] = record.port;
  put(object, "names", record.names, kMaxNames);
  put(object, "sni", record.sni);
  put(object, "host", record.host);
  if (record.traffic) object["bytes"] = {{"out", record.traffic->out}, {"in", record.traffic->in}};
  if (record.count != 1) object["count"] = record.count;
  put(object, "destinations", record.destinations, kMaxDestinations);
  put(object, "text", record.text);
  std::string line = dump(object);
  if (line.size() <= kMaxRecordBytes) return line;
  // Only escapes can make the bounded members this large; what decides is kept.
  for (const auto* key : {"names", "destinations", "text"}) object.erase(key);
  object["text"] = "cut: too long";
  return dump(object);
}

Result<Record> from_json(std::string_view text) {
  ASSIGN(const Json object, parse_object(text, kMaxRecordBytes));
  return read_record(object);
}

Result<std::string> stamp(std::string_view message, uint64_t seq, int64_t time_ns,
                          std::string_view source) {
  ASSIGN(const Json object, parse_object(message, kMaxRecordBytes));
  for (const auto* key : {"seq", "time", "source"})
    if (object.contains(key))
      return fail(Code::kProtocol, "member '{}' is the recorder's to write", key);
  TRY(read_record(object));
  Json line = {{"seq", seq}, {"time", format_rfc3339(time_ns)}, {"source", source}};
  line.update(object);
  return dump(line);
}

Result<LogEntry> parse_log_line(std::string_view line) {
  ASSIGN(const Json object, parse_object(line, kMaxLineBytes));
  LogEntry entry;
  Reader reader(object);
  std::string time;
  reader.number(object, "seq", entry.seq);
  reader.text("time", time);
  reader.text("source", entry.source);
  entry.time_ns = parse_rfc3339(time);
  if (!reader.complaint().empty() || entry.seq == 0 || entry.time_ns < 0 || entry.source.empty())
    return fail(Code::kProtocol, "seq, time or source is missing or wrong");
  ASSIGN(entry.record, read_record(object));
  entry.line = line;
  return entry;
}

}  // namespace sandbox::audit
