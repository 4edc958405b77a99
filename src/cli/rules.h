#pragma once
// Rules as words of the command line.

#include <string>
#include <vector>

#include "base/result.h"

namespace sandbox::cli {

// Each is a rule, and none is one that could never help.
Status check_rules(const std::vector<std::string>& allow, const std::vector<std::string>& deny);

}  // namespace sandbox::cli
