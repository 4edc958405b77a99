#pragma once
// How a supervisor tells its client why the sandbox failed: the text of a kError frame on stream 0.
// The first line is the message, the second, where there is one, the hint.

#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbox {

std::string failure_report(const Error& error);
// What the client prints. The message may quote the guest; whoever prints it escapes it.
Error error_from_report(std::string_view report);

}  // namespace sandbox
