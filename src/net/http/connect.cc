#include "net/http/connect.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace sandbox::http {

namespace {

constexpr size_t kMaxReason = 64;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string base64(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < text.size(); at += 3) {
    const std::string_view group = text.substr(at, 3);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < group.size() ? static_cast<uint8_t>(group[i]) : 0U);
    for (size_t i = 0; i < 4; ++i)
      out += i <= group.size() ? kAlphabet[bits >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

}  // namespace

std::string connect_request(const Authority& target, std::string_view authorization) {
  const std::string where = target.text();
  std::string out = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", where);
  if (!authorization.empty()) out += fmt::format("Proxy-Authorization: {}\r\n", authorization);
  return out + "\r\n";
}

std::string basic_authorization(std::string_view user, std::string_view password) {
  return "Basic " + base64(fmt::format("{}:{}", user, password));
}

ConnectReply::Step ConnectReply::feed(ByteView bytes) {
  Step step;
  while (state_ == State::kNeedMore && step.consumed < bytes.size()) {
    if (++taken_ > kMaxHead) {
      state_ = State::kMalformed;
      break;
    }
    line_ += static_cast<char>(bytes[step.consumed++]);
    if (line_.back() == '\n') {
      state_ = judge_line();
      line_.clear();
    }
  }
  step.state = state_;
  return step;
}

// One whole line, its end included.
ConnectReply::State ConnectReply::judge_line() {
  std::string_view line(line_);
  if (!line.ends_with("\r\n")) return State::kMalformed;
  line.remove_suffix(2);
  if (in_fields_) return line.empty() ? judge_head() : State::kNeedMore;
  // "HTTP/1.1 200 Connection established", the reason phrase may be missing with its space.
  constexpr size_t kStatus = 9;
  const bool shaped = line.starts_with("HTTP/1.") && line.size() >= kStatus + 3 &&
                      is_digit(line[7]) && line[8] == ' ' &&
                      std::all_of(line.begin() + kStatus, line.begin() + kStatus + 3, is_digit) &&
                      (line.size() == kStatus + 3 || line[kStatus + 3] == ' ');
  if (!shaped) return State::kMalformed;
  status_ = static_cast<int>(parse_decimal(line.substr(kStatus, 3)).value_or(0));
  reason_ = trim(line.substr(kStatus + 3));
  in_fields_ = true;
  return status_ >= 100 && status_ < 600 ? State::kNeedMore : State::kMalformed;
}

// The head is complete.
ConnectReply::State ConnectReply::judge_head() {
  in_fields_ = false;
  if (status_ == 101) return State::kMalformed;  // nobody asked for another protocol
  if (status_ < 200) return State::kNeedMore;
  return status_ < 300 ? State::kOpen : State::kRefused;
}

std::string ConnectReply::text() const {
  const std::string shown = escape_terminal(std::string_view(reason_).substr(0, kMaxReason));
  const std::string whole =
      shown.empty() ? fmt::format("{}", status_) : fmt::format("{} {}", status_, shown);
  return whole.substr(0, 100);
}

}  // namespace sandbox::http
