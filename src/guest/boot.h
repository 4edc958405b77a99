#pragma once
// From the kernel's hand-over to "ready to be saved": everything a start would otherwise have to
// do, done once.
//
// Sentry's root is a tmpfs moved over the initramfs, because pivot_root(2) refuses to leave the
// initramfs itself:
//   /proc /sys /dev /cgroup   sentry's own, never seen by the workload
//   /workload-dev             the workload's /dev with pts, shm and mqueue in it, bound into its
//   root at resume /newroot                  the mount point of the root disk

#include "base/fd.h"
#include "base/result.h"

namespace sandbox::guest {

inline constexpr const char* kNewRoot = "/newroot";
inline constexpr const char* kWorkloadDev = "/workload-dev";
inline constexpr const char* kCgroups = "/cgroup";

struct Booted {
  Fd control;    // the port sandbox.ctl.0, non-blocking
  Fd files;      // the port sandbox.fs.0; not valid on a machine without one
  Fd random;     // /dev/random, for the entropy of the resume
  Fd terminals;  // the workload's devpts, O_PATH: sentry opens its ptmx whatever the workload does
                 // to the mount
};

// Call once, as PID 1, with one thread.
Result<Booted> boot();

}  // namespace sandbox::guest
