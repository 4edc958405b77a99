#pragma once
// What makes a restored boot state one particular sandbox: randomness first, then time, then the
// rest, independent steps of it side by side:
//
//   the network device         beside   the root disk, the account, the kernel's views, the shares
//   hostname, hosts, resolver  beside   the account, the kernel's views
//
// Two orders are arguments: nothing that could draw random bytes or read the clock comes before the
// first two, and what is written to the disk is written before the first share is mounted, which
// may cover the place and would carry the write to the host. The links alone come last, since none
// is made where a share stands; the host orders them in the root itself, which no share covers.
//
// When resume() returns, nothing of it runs any more but the threads of the relay.

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
