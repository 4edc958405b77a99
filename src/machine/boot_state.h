#pragma once
// Boot states: a machine that has booted once, frozen at the moment in which sentry waits for its
// first order.
//
//   boot/SHAPE/inputs    everything the state was made from, one "name value" line each
//   boot/SHAPE/ram       guest memory, sparse
//   boot/SHAPE/state     device state, QEMU's migration stream
//   boot/SHAPE/digests   SHA-256 of ram and state
//   boot/SHAPE.lock      held while one is looked at or made
//   boot/known-digests   see known_digests.h
//
// One per shape (memory, CPUs, engine). QEMU checks almost nothing of what it restores, so we do:
// other inputs, another digest or a missing file discard the whole state, say so through Progress,
// and make it anew (2 to 8 s under emulation).

#include <string>

#include "base/fd.h"
#include "base/progress.h"
#include "base/result.h"
#include "machine/kernel.h"
#include "machine/qemu.h"
#include "machine/shape.h"
#include "store/home.h"

namespace sandbox {

struct BootSpec {
  Kernel kernel;
  std::string sentry;  // path of the static sandbox-sentry
  Qemu qemu;
  MachineShape shape;
};

// Holds its files open: a state that is replaced meanwhile stays what it was.
struct BootState {
  Fd ram;    // read-only
  Fd state;  // read-only, position 0
  MachineShape shape;
  std::string key;  // SHA-256 of the inputs, hex
};

Result<BootState> ensure_boot_state(const Home& home, const BootSpec& spec, Progress& progress);

// Removes all of them; for `prune` and for tests.
Status discard_boot_states(const Home& home);

}  // namespace sandbox
