#pragma once
// A command is one file, its manual beside its code: main.cc has the table.

#include <string>
#include <string_view>
#include <vector>

namespace sandbox::cli {

enum Exit : int {
  kDone = 0,
  kFailed = 1,           // failed, or denied
  kUsage = 2,            // the words on the command line are off
  kTimedOut = 124,       // as timeout(1)
  kSandboxFailed = 125,  // the sandbox itself failed, as opposed to the command in it
  kInterrupted = 130     // as a shell says of SIGINT
};

struct Command {
  std::string_view name;                      // "run", "policy check"
  std::string_view summary;                   // one line
  std::string_view manual;                    // what --help prints: examples first, then the flags
  int (*run)(std::vector<std::string> args);  // the words after the command's name
};

}  // namespace sandbox::cli
