#pragma once
// A name of one directory entry, as the guest may send it: 1 to 255 bytes without '/' or NUL, and
// neither "." nor "..". Only a Name reaches a system call, so nothing that the guest sends can be a
// path.

#include <string>
#include <string_view>

#include "files/outcome.h"

namespace sandbox::files {

class Name {
 public:
  static Outcome<Name> parse(std::string_view text) {
    if (text.size() > 255) return refuse(ENAMETOOLONG);
    if (text.empty() || text == "." || text == "..") return refuse(EINVAL);
    if (text.find('/') != std::string_view::npos || text.find('\0') != std::string_view::npos)
      return refuse(EINVAL);
    return Name(std::string(text));
  }
  [[nodiscard]] const char* c_str() const { return text_.c_str(); }
  [[nodiscard]] std::string_view view() const { return text_; }

 private:
  explicit Name(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

}  // namespace sandbox::files
