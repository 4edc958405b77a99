#include "net/http/head.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace sandbox::http {

namespace {

// What a target or a field value may hold: visible ASCII and bytes above it.
bool is_text_byte(char c) {
  return static_cast<unsigned char>(c) > 0x20 && c != 0x7F;
}

bool all_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_text_byte);
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_byte);
}

// What the fields of one head say, before any of it is judged.
struct Fields {
  std::vector<std::string_view> host, length, coding, upgrade, expect;
};

Result<Fields> read_fields(std::string_view lines) {
  Fields fields;
  while (!lines.empty()) {
    const size_t end = lines.find("\r\n");
    ASSIGN(const Field field, parse_field(lines.substr(0, end)));
    lines.remove_prefix(end + 2);
    const std::string name = to_lower(field.name);
    if (name == "host") fields.host.push_back(field.value);
    if (name == "content-length") fields.length.push_back(field.value);
    if (name == "transfer-encoding") fields.coding.push_back(field.value);
    if (name == "upgrade") fields.upgrade.push_back(field.value);
    if (name == "expect") fields.expect.push_back(field.value);
  }
  return fields;
}

// method SP target SP version, single spaces.
Status parse_request_line(std::string_view line, Request& request) {
  const auto words = split(line, ' ');
  if (words.size() != 3) return fail(Code::kProtocol, "a request line of {} words", words.size());
  if (!is_token(words[0])) return fail(Code::kProtocol, "a malformed method");
  if (words[1].empty() || !all_text(words[1])) return fail(Code::kProtocol, "a malformed target");
  if (words[2].starts_with("HTTP/2") || words[2].starts_with("HTTP/3"))
    return fail(Code::kProtocol, "HTTP/2 without TLS: its names cannot be read");
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0")
    return fail(Code::kProtocol, "an unknown version of HTTP");
  request.method = words[0];
  request.target = words[1];
  request.minor = words[2].back() - '0';
  return {};
}

// http://authority[/path][?query]
Result<Authority> authority_of_absolute(std::string_view target, uint16_t& default_port) {
  const size_t colon = target.find("://");
  const std::string scheme = to_lower(target.substr(0, colon));
  if (colon == std::string_view::npos || (scheme != "http" && scheme != "https"))
    return fail(Code::kProtocol, "a target that is neither path nor http URL");
  default_port = scheme == "https" ? 443 : 80;
  const std::string_view rest = target.substr(colon + 3);
  auto authority = Authority::parse(rest.substr(0, rest.find_first_of("/?#")));
  if (!authority) return fail(Code::kProtocol, "a malformed host in the target");
  return std::move(*authority);
}

Status parse_target(Request& request) {
  if (request.method == "CONNECT") {
    request.form = Form::kAuthority;
    request.host = Authority::parse(request.target);
    if (!request.host || !request.host->port()) return fail(Code::kProtocol, "a malformed CONNECT");
    return {};
  }
  if (request.target == "*") {
    request.form = Form::kAsterisk;
    if (request.method != "OPTIONS") return fail(Code::kProtocol, "'*' without OPTIONS");
    return {};
  }
  if (request.target.starts_with('/')) return {};
  request.form = Form::kAbsolute;
  ASSIGN(request.host, authority_of_absolute(request.target, request.default_port));
  return {};
}

bool agree(const Request& request, const Authority& host) {
  if (!host.same_host(*request.host)) return false;
  // Some clients leave the port of a CONNECT out of Host.
  if (request.form == Form::kAuthority && !host.port()) return true;
  return host.port().value_or(request.default_port) ==
         request.host->port().value_or(request.default_port);
}

Status take_host(const std::vector<std::string_view>& values, Request& request) {
  if (values.size() > 1) return fail(Code::kProtocol, "more than one Host");
  if (values.empty()) {
    if (request.minor == 0) return {};
    return fail(Code::kProtocol, "no Host");
  }
  const auto host = Authority::parse(values.front());
  if (!host) return fail(Code::kProtocol, "a malformed Host");
  if (!request.host) {
    request.host = host;
    return {};
  }
  if (!agree(request, *host)) return fail(Code::kProtocol, "Host and target disagree");
  return {};
}

// The last coding must be chunked, and it alone: only then is the end of the body known.
bool ends_in_single_chunked(std::string_view value) {
  const auto codings = split(value, ',');
  for (size_t i = 0; i < codings.size(); ++i) {
    const std::string coding = to_lower(trim(codings[i]));
    const bool last = i + 1 == codings.size();
    if (last != (coding == "chunked")) return false;
    if (!last && coding != "gzip" && coding != "deflate" && coding != "compress") return false;
  }
  return !codings.empty();
}

Result<Framing> framing_of(const Fields& fields, const Request& request) {
  using Kind = Framing::Kind;
  if (fields.length.size() + fields.coding.size() > 1)
    return fail(Code::kProtocol, "more than one length of the body");
  if (request.form == Form::kAuthority && fields.length.size() + fields.coding.size() > 0)
    return fail(Code::kProtocol, "CONNECT with a body");
  if (!fields.length.empty()) {
    const std::string_view text = fields.length.front();
    const auto number = parse_decimal(text);
    if (!number || *number > 1ULL << 62) return fail(Code::kProtocol, "a malformed Content-Length");
    return Framing{*number == 0 ? Kind::kNone : Kind::kLength, *number};
  }
  if (fields.coding.empty()) return Framing{};
  if (request.minor == 0) return fail(Code::kProtocol, "Transfer-Encoding in HTTP/1.0");
  if (!ends_in_single_chunked(fields.coding.front()))
    return fail(Code::kProtocol, "a Transfer-Encoding that does not end in one 'chunked'");
  return Framing{Kind::kChunked, 0};
}

Status take_upgrade(const Fields& fields, const Framing& framing, Request& request) {
  if (fields.upgrade.empty()) return {};
  if (fields.upgrade.size() > 1 || to_lower(fields.upgrade.front()) != "websocket")
    return fail(Code::kProtocol, "an upgrade to anything but websocket");
  if (request.minor == 0 || request.method != "GET" || framing.kind != Framing::Kind::kNone)
    return fail(Code::kProtocol, "a malformed upgrade to websocket");
  request.websocket = true;
  return {};
}

}  // namespace

bool is_token_byte(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kMarks.find(c) != std::string_view::npos;
}

bool is_known_method(std::string_view word) {
  constexpr std::array<std::string_view, 9> kMethods = {
      "get", "head", "post", "put", "delete", "connect", "options", "trace", "patch"};
  return std::find(kMethods.begin(), kMethods.end(), to_lower(word)) != kMethods.end();
}

Status check_request_line(std::string_view line) {
  Request request;
  return parse_request_line(line, request);
}

Result<Field> parse_field(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return fail(Code::kProtocol, "a malformed field");
  const std::string_view value = trim(line.substr(colon + 1));
  const bool clean = std::all_of(value.begin(), value.end(),
                                 [](char c) { return is_text_byte(c) || c == ' ' || c == '\t'; });
  if (!clean) return fail(Code::kProtocol, "a control byte in a field");
  // trim() also takes CR and others off the ends, where they are no less malformed.
  if (line.find_first_of(std::string_view("\r\n\v\f\0", 5)) != std::string_view::npos)
    return fail(Code::kProtocol, "a control byte in a field");
  return Field{line.substr(0, colon), value};
}

Result<uint64_t> parse_chunk_size(std::string_view line) {
  constexpr size_t kMaxDigits = 15;
  const std::string_view digits = line.substr(0, line.find(';'));
  if (digits.empty() || digits.size() > kMaxDigits)
    return fail(Code::kProtocol, "a malformed chunk");
  uint64_t size = 0;
  for (const char c : digits) {
    const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c;
    const bool decimal = lower >= '0' && lower <= '9';
    if (!decimal && (lower < 'a' || lower > 'f')) return fail(Code::kProtocol, "a malformed chunk");
    size = size << 4 | static_cast<uint64_t>(decimal ? lower - '0' : lower - 'a' + 10);
  }
  for (const char c : line)
    if (!is_text_byte(c) && c != ' ' && c != '\t')
      return fail(Code::kProtocol, "a malformed chunk");
  return size;
}

Result<Head> parse_head(std::string_view text) {
  const size_t line_end = text.find("\r\n");
  Head head;
  TRY(parse_request_line(text.substr(0, line_end), head.request));
  text.remove_prefix(line_end + 2);
  text.remove_suffix(2);  // the empty line
  ASSIGN(const Fields fields, read_fields(text));
  TRY(parse_target(head.request));
  TRY(take_host(fields.host, head.request));
  ASSIGN(head.framing, framing_of(fields, head.request));
  TRY(take_upgrade(fields, head.framing, head.request));
  head.request.expect_continue = !fields.expect.empty();
  return head;
}

}  // namespace sandbox::http
