#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/output.h"

namespace sandbox::cli {

namespace {

int run_version(std::vector<std::string> args) {
  if (!args.empty()) return usage_error("version", fmt::format("unexpected word '{}'", args[0]));
  fmt::print("sandbox {}\n", SANDBOX_VERSION);
  return kDone;
}

}  // namespace

extern const Command kVersion;
const Command kVersion{"version", "print the version", "sandbox version\n", run_version};

}  // namespace sandbox::cli
