#pragma once
// What a boot state depends on, as text: one "name value" line per input, in a fixed order. Two
// machines with equal inputs may share a boot state; with any other QEMU refuses at best, and at
// worst loads and hangs (another -cpu does).

#include <string>

#include "base/result.h"
#include "machine/boot_state.h"
#include "machine/known_digests.h"

namespace sandbox {

Result<std::string> boot_inputs(const BootSpec& spec, KnownDigests& known);

// The name of the first line that differs, for people: "qemu", "sentry", "argument".
std::string first_difference(std::string_view before, std::string_view now);

}  // namespace sandbox
