#pragma once
// Diagnostics of a helper process, one line each on stderr: "sandbox-gateway: text". The supervisor
// keeps each helper's stderr for its failure report; nothing of what decides is logged here (that
// is the audit record's job).

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sandbox::log {

void set_program(std::string_view name);
void line(std::string_view text);  // control bytes are escaped

template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  line(fmt::format(format, std::forward<Args>(args)...));
}

// SANDBOX_TRACE=1: phases of a start, "trace  123.4 ms  supervisor: qemu spawned", times from
// CLOCK_MONOTONIC relative to SANDBOX_TRACE_START (nanoseconds, set by the first process), so lines
// of all processes share one axis.
bool trace_enabled();
void trace(std::string_view phase);

}  // namespace sandbox::log
