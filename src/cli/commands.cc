#include "cli/commands.h"

#include <array>

namespace sandbox::cli {

std::span<const Command* const> commands() {
  static constexpr std::array kAll = {&kRun,           &kPorts,       &kPolicyCheck,   &kPolicyLog,
                                      &kPolicyExplain, &kPolicyAllow, &kPolicyDeny,    &kImagePull,
                                      &kImageLs,       &kImageRm,     &kKernelInstall, &kKernelLs,
                                      &kDoctor,        &kVersion};
  return kAll;
}

}  // namespace sandbox::cli
