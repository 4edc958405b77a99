#include "net/http/first_line.h"

#include <algorithm>

#include "base/text.h"
#include "net/http/head.h"

namespace sandbox::http {

namespace {

constexpr size_t kLongestMethod = 7;  // CONNECT, OPTIONS

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

bool is_method(std::string_view word, std::string_view lower) {
  return to_lower(word) == lower;
}

// "a.b:443"
bool has_port(std::string_view target) {
  const size_t colon = target.rfind(':');
  return colon != std::string_view::npos && parse_decimal(target.substr(colon + 1)).has_value();
}

}  // namespace

FirstLine::Guess FirstLine::feed(char byte) {
  if (at_ == At::kBefore) {
    if (is_blank(byte)) return Guess::kUndecided;
    at_ = At::kWord;
  }
  if (at_ == At::kWord) {
    if (is_token_byte(byte)) {
      if (word_.size() <= kLongestMethod) word_ += byte;
      return Guess::kUndecided;
    }
    at_ = At::kRest;
    if (word_.empty() || !is_blank(byte)) return judge_odd_byte();
  }
  if (is_control(byte) && !is_blank(byte)) return judge_odd_byte();
  rest_ += byte;
  return byte == '\n' ? judge_line() : Guess::kUndecided;
}

// "GET\0/" is no request to us, but perhaps to someone.
FirstLine::Guess FirstLine::judge_odd_byte() const {
  return is_known_method(word_) ? Guess::kHttp : Guess::kNotHttp;
}

FirstLine::Guess FirstLine::judge_line() const {
  const std::string lower = to_lower(rest_);
  if (lower.find("http/") != std::string::npos) return Guess::kHttp;
  if (!is_known_method(word_)) return Guess::kNotHttp;
  const std::string_view text = trim(lower);
  const auto blank = std::find_if(text.begin(), text.end(), is_blank);
  const std::string_view target = text.substr(0, static_cast<size_t>(blank - text.begin()));
  // RTSP, SIP and ICAP begin with OPTIONS, a URL and their own version.
  if (target.size() != text.size() && is_method(word_, "options")) return Guess::kNotHttp;
  const bool path_or_url = target.starts_with('/') || target.find("://") != std::string_view::npos;
  const bool tunnel = is_method(word_, "connect") && has_port(target);
  return path_or_url || tunnel ? Guess::kHttp : Guess::kNotHttp;
}

}  // namespace sandbox::http
