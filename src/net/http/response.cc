#include <fmt/format.h>

#include "net/http/request_head.h"

namespace sandbox::http {

namespace {

Bytes response(std::string_view status, std::string_view text, bool head_only) {
  const std::string body = fmt::format("{}\n", text);
  const std::string whole = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n"
      "Cache-Control: no-store\r\nConnection: close\r\n\r\n{}",
      status, body.size(), head_only ? "" : body);
  return Bytes(whole.begin(), whole.end());
}

}  // namespace

UpgradeReply::State UpgradeReply::feed(ByteView bytes) {
  if (state_ != State::kNeedMore) return state_;
  head_.append(as_text(bytes));
  while (true) {
    // "HTTP/1.x 1" begins every interim answer and 101; anything else declines.
    constexpr std::string_view kPrefix = "HTTP/1.";
    constexpr size_t kStatus = 9;
    if (!std::string_view(head_).starts_with(kPrefix.substr(0, head_.size())))
      return state_ = State::kDeclined;
    if (head_.size() <= kStatus + 3) return state_;
    if (head_[kStatus] != '1') return state_ = State::kDeclined;
    const bool switching = head_.compare(kStatus, 3, "101") == 0;
    const size_t end = head_.find("\r\n\r\n");
    const bool unfinished = end == std::string::npos;
    if ((unfinished ? head_.size() : end + 4) > RequestReader::kMaxHead)
      return state_ = State::kDeclined;
    if (unfinished) return state_;
    if (switching) return state_ = State::kAccepted;
    head_.erase(0, end + 4);
  }
}

Bytes forbidden(std::string_view text, bool head_only) {
  return response("403 Forbidden", text, head_only);
}

Bytes bad_request(std::string_view text) {
  return response("400 Bad Request", text, false);
}

}  // namespace sandbox::http
