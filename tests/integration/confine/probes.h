#pragma once
// What hostile code would try from inside a confined process: each probe makes one attempt and
// answers 0 (it got through) or the errno. A kill by seccomp is seen by whoever started it, so each
// runs in a process of its own.
//
// The surroundings come from the environment: CONFINE_PROBE_DIR, a folder with home/ (notes,
// unlinked, renamed, .ssh/id_ed25519) and run/other/disk.qcow2; CONFINE_PROBE_VICTIM, another
// process of the user, and CONFINE_PROBE_ADDRESS, where it has readable memory; CONFINE_PROBE_PORT,
// a port of loopback on which somebody listens; CONFINE_PROBE_WIRE, a descriptor on which something
// of the guest waits.

#include <span>

namespace sandbox::probe {

struct Probe {
  const char* name;
  int (*attempt)();
};

constexpr int kExecuted = 98;  // exit status of the programs that probes try to become

// Before any confinement.
void prepare();
std::span<const Probe> all();

}  // namespace sandbox::probe
