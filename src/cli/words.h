#pragma once
// What every command does with its words: CLI11 takes them apart, and what is wrong with them
// becomes an error of ours, with the flag that was probably meant.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace CLI {
class App;
}

namespace sandbox::cli {

// A flag that may be given again and again, one value each time: --allow A --allow B.
void add_repeatable(CLI::App& app, const std::string& flag, std::vector<std::string>& into);

// Fills what was bound to `app`. The error names `command` and always has a hint; it is one of
// usage.
Status parse_words(CLI::App& app, std::string_view command, std::vector<std::string> words);

}  // namespace sandbox::cli
