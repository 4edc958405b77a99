#pragma once
// Why a machine did not start or did not stay: from what QEMU, the launcher and the guest's console
// said to one Error with a hint. Pure.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbox {

struct MachineEvidence {
  std::optional<int> wait_status = {};  // of the launcher, as from waitpid
  std::string stderr_text = {};
  std::string console_tail = {};
  std::string shutdown_reason =
      {};  // of QMP's SHUTDOWN event: "guest-shutdown", "guest-reset", "guest-panic"...
  std::optional<Error> other = {};  // what the caller saw: QMP's words, a timeout
};

// `doing` is what was under way: "restoring the boot state", "running".
Error diagnose(std::string_view doing, const MachineEvidence& evidence);

}  // namespace sandbox
