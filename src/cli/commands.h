#pragma once
// The table of commands, in the order the overview shows them.

#include <span>

#include "cli/command.h"

namespace sandbox::cli {

extern const Command kRun;
extern const Command kPorts;
extern const Command kPolicyCheck;
extern const Command kPolicyLog;
extern const Command kPolicyExplain;
extern const Command kPolicyAllow;
extern const Command kPolicyDeny;
extern const Command kImagePull;
extern const Command kImageLs;
extern const Command kImageRm;
extern const Command kKernelInstall;
extern const Command kKernelLs;
extern const Command kDoctor;
extern const Command kVersion;

std::span<const Command* const> commands();

}  // namespace sandbox::cli
