#pragma once
// Inside of the HTTP library: one complete request head, and the parts of it that chunked framing
// shares.

#include <string_view>

#include "net/http/request_head.h"

namespace sandbox::http {

struct Framing {
  enum class Kind { kNone, kLength, kChunked };
  Kind kind = Kind::kNone;
  uint64_t length = 0;
};

struct Head {
  Request request;
  Framing framing;
};

// `text` ends with the empty line. The error is the reason for kMalformed.
Result<Head> parse_head(std::string_view text);

// The first line alone, without CRLF: what is wrong there is known before the rest has come.
Status check_request_line(std::string_view line);

struct Field {
  std::string_view name;
  std::string_view value;  // without the white space around it
};
Result<Field> parse_field(std::string_view line);  // without CRLF

// Size of a chunk from its line, without CRLF. Extensions are passed over.
Result<uint64_t> parse_chunk_size(std::string_view line);

bool is_token_byte(char c);
// White space of every kind, line ends included.
inline bool is_blank(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
// One of the methods of RFC 9110, PATCH included, in whatever case.
bool is_known_method(std::string_view word);

}  // namespace sandbox::http
