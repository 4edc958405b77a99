// From bytes to heads and bodies. A head is gathered line by line, so that a malformed line end is
// seen at once.

#include <algorithm>

#include "base/text.h"
#include "net/http/head.h"

namespace sandbox::http {

namespace {

// Behind the next line feed, or the end of the text.
size_t end_of_line(std::string_view text, size_t from) {
  const size_t newline = text.find('\n', from);
  return newline == std::string_view::npos ? text.size() : newline + 1;
}

}  // namespace

RequestReader::Step RequestReader::feed(ByteView bytes) {
  switch (phase_) {
    case Phase::kHead:
      return read_head(bytes);
    case Phase::kLength:
    case Phase::kChunkData:
      return read_body(bytes);
    case Phase::kChunkSize:
    case Phase::kChunkEnd:
    case Phase::kTrailers:
      return read_line(bytes);
    case Phase::kAwait:
      return {Event::kAwait101, 0};
    case Phase::kOpaque:
      return {Event::kOpaque, 0};
    case Phase::kNotHttp:
      return {Event::kNotHttp, 0};
    case Phase::kFailed:
      break;
  }
  return {Event::kMalformed, 0};
}

RequestReader::Step RequestReader::malformed(std::string why, size_t consumed) {
  phase_ = Phase::kFailed;
  reason_ = std::move(why);
  return {Event::kMalformed, consumed};
}

RequestReader::Step RequestReader::read_head(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  size_t at = 0;
  while (at < text.size()) {
    // Byte by byte as long as it may turn out to be something else, line by line afterwards.
    const size_t begin = at;
    at = is_http_ ? end_of_line(text, begin) : begin + 1;
    head_.append(text.substr(begin, at - begin));
    if (head_.size() > kMaxHead) return malformed("a head of more than 64 KiB", at);
    if (!is_http_) {
      const FirstLine::Guess guess = first_line_.feed(text[begin]);
      if (guess == FirstLine::Guess::kNotHttp) {
        phase_ = Phase::kNotHttp;
        return {Event::kNotHttp, at};
      }
      is_http_ = guess == FirstLine::Guess::kHttp;
    }
    if (!is_http_ || head_.back() != '\n') continue;
    if (is_blank(head_.front())) return malformed("white space before the request", at);
    if (!head_.ends_with("\r\n")) return malformed("a line that does not end in CR LF", at);
    if (head_.find('\n') + 1 == head_.size()) {
      const std::string_view line = std::string_view(head_).substr(0, head_.size() - 2);
      if (const Status first = check_request_line(line); !first)
        return malformed(first.error().message, at);
    }
    if (head_.ends_with("\r\n\r\n")) return head_complete(at);
  }
  return {Event::kNeedMore, at};
}

RequestReader::Step RequestReader::head_complete(size_t consumed) {
  auto head = parse_head(head_);
  if (!head) return malformed(head.error().message, consumed);
  if (head->request.websocket && requests_ != 0)
    return malformed("an upgrade after other requests on the same connection", consumed);
  head_.clear();
  request_ = std::move(head->request);
  ++requests_;
  left_ = head->framing.length;
  trailer_bytes_ = 0;
  switch (head->framing.kind) {
    case Framing::Kind::kNone:
      phase_ = Phase::kHead;
      break;
    case Framing::Kind::kLength:
      phase_ = Phase::kLength;
      break;
    case Framing::Kind::kChunked:
      phase_ = Phase::kChunkSize;
      break;
  }
  if (request_.websocket) phase_ = Phase::kAwait;
  if (request_.form == Form::kAuthority) phase_ = Phase::kOpaque;
  return {Event::kRequest, consumed};
}

RequestReader::Step RequestReader::read_body(ByteView bytes) {
  const auto count = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
  left_ -= count;
  if (left_ == 0) phase_ = phase_ == Phase::kLength ? Phase::kHead : Phase::kChunkEnd;
  return {Event::kBody, count};
}

// A line of the chunked framing: a size, the empty end of a chunk, a trailer.
RequestReader::Step RequestReader::read_line(ByteView bytes) {
  const std::string_view text = as_text(bytes);
  const size_t newline = text.find('\n');
  const size_t consumed = newline == std::string_view::npos ? text.size() : newline + 1;
  head_.append(text.substr(0, consumed));
  const size_t limit = phase_ == Phase::kTrailers ? kMaxHead : kMaxChunkLine;
  trailer_bytes_ += phase_ == Phase::kTrailers ? consumed : 0;
  if (head_.size() > limit || trailer_bytes_ > kMaxHead)
    return malformed("a chunk size or trailers too long", consumed);
  if (newline == std::string_view::npos) return {Event::kBody, consumed};
  if (!head_.ends_with("\r\n")) return malformed("a line that does not end in CR LF", consumed);
  const std::string line = head_.substr(0, head_.size() - 2);
  head_.clear();

  if (phase_ == Phase::kChunkSize) {
    const auto size = parse_chunk_size(line);
    if (!size) return malformed(size.error().message, consumed);
    left_ = *size;
    phase_ = left_ == 0 ? Phase::kTrailers : Phase::kChunkData;
  } else if (phase_ == Phase::kChunkEnd) {
    if (!line.empty()) return malformed("a chunk longer than its size", consumed);
    phase_ = Phase::kChunkSize;
  } else if (line.empty()) {
    phase_ = Phase::kHead;
  } else if (const auto field = parse_field(line); !field) {
    return malformed(field.error().message, consumed);
  }
  return {Event::kBody, consumed};
}

void RequestReader::upgraded(bool accepted) {
  if (phase_ == Phase::kAwait) phase_ = accepted ? Phase::kOpaque : Phase::kHead;
}

}  // namespace sandbox::http
