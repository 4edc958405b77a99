#pragma once
// Runs one command over a connection to a supervisor and connects it with this process's stdin,
// stdout, stderr, terminal and signals.
//
// The user's descriptors are never made non-blocking: they are shared with the shell. Instead each
// is polled first; a pipe that polls writable takes 4096 bytes without blocking (pipe(7)).

#include <optional>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "channel/messages.h"
#include "cli/asker.h"

namespace sandbox::cli {

struct RelayResult {
  channel::Exit exit;
  bool timed_out = false;
  bool interrupted = false;  // the user pressed Ctrl-C three times; the command did not end
};

// An error is the sandbox's, not the command's. `at_most`: the command is abandoned after that.
// `asker`: shows what the sandbox asks on the terminal meanwhile; null where nobody is asked.
Result<RelayResult> relay_command(const Fd& connection, const channel::ExecRequest& request,
                                  std::optional<Duration> at_most, Asker* asker);

}  // namespace sandbox::cli
