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
  const std::string_view target = trim(lower);
  const bool one_word = std::none_of(target.begin(), target.end(), is_blank);
  const bool path_or_url = target.starts_with('/') || target.find("://") != std::string_view::npos;
  return is_known_method(word_) && one_word && path_or_url ? Guess::kHttp : Guess::kNotHttp;
}

}  // namespace sandbox::http
