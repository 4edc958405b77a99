#pragma once
// $SANDBOX_HOME/allow: the allow rules that every sandbox of this user starts with. One rule a
// line; blank lines and lines that begin with '#' are passed over. It is a file for people, too:
// what `run --ask` adds is added at its end.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/home.h"

namespace sandbox {

std::string allow_list_path(const Home& home);
// No file: no rules. A line that is no rule is an error that names it: a list is not read in part.
Result<std::vector<std::string>> read_allow_list(const Home& home);
// In its one spelling. True: it was added; false: it was there. What is no rule is an error.
Result<bool> add_to_allow_list(const Home& home, std::string_view word);

}  // namespace sandbox
