#pragma once
// Is this HTTP at all? Decided from the first line a client sends.
//
// The decision must not be fooled: whatever is called "not HTTP" passes unread. So the question is
// what the most lenient server might take for a request line: white space of any kind before it or
// between its words, an unknown method, lower case, no version (HTTP/0.9), white space within the
// target of a request without a version, which some servers take for a part of it. All of that is
// HTTP here, and then malformed. Not HTTP is a first word with a byte that no method has, a control
// byte in the line, or a line without "HTTP/" that is no 0.9 request either. A line without an end
// stays undecided.

#include <string>

namespace sandbox::http {

class FirstLine {
 public:
  enum class Guess { kUndecided, kNotHttp, kHttp };
  Guess feed(char byte);  // until it is decided; the caller bounds the length

 private:
  enum class At { kBefore, kWord, kRest };
  [[nodiscard]] Guess judge_line() const;
  [[nodiscard]] Guess judge_odd_byte() const;

  At at_ = At::kBefore;
  std::string word_;  // no longer than tells whether it is a known method
  std::string rest_;
};

}  // namespace sandbox::http
