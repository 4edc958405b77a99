#pragma once
// -w and -m: from the words of the command line to checked shares.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/home.h"
#include "supervisor/spec.h"

namespace sandbox::cli {

struct Shares {
  std::vector<ShareSpec> list;
  std::string workspace;           // guest path of the workspace; empty: none
  std::vector<std::string> notes;  // for the user
};

// `workspace`: the value of -w. Without one the working directory is shared at its own path, unless
// it is one that nobody means to hand over; then there is a note and no workspace.
Result<Shares> plan_shares(const Home& home, const std::optional<std::string>& workspace,
                           const std::vector<std::string>& mounts);

}  // namespace sandbox::cli
