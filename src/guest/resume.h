#pragma once
// What makes a restored boot state one particular sandbox: randomness first, then time, names,
// addresses, the disk and what is on it. The order is the argument: nothing that could draw random
// bytes or read the clock comes before the first two.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "channel/messages.h"
#include "guest/boot.h"
#include "guest/file_relay.h"
#include "guest/root_dir.h"

namespace sandbox::guest {

struct Resumed {
  RootDir root;                      // the mounted disk at kNewRoot
  std::unique_ptr<FileRelay> relay;  // null without shares
  std::vector<std::string> warnings;
};

// After an error the sandbox is unusable and the error goes to the host.
Result<Resumed> resume(Booted& booted, const channel::ResumeRequest& request);

Status set_clock(uint64_t wall_ns);

}  // namespace sandbox::guest
