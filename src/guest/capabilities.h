#pragma once
// What root inside the workload may do, per profile; docs/decisions/051 gives the reasons.

#include <cstdint>

#include "base/result.h"
#include "channel/messages.h"

namespace sandbox::guest {

// Bit n stands for capability n of linux/capability.h.
using CapabilitySet = uint64_t;

CapabilitySet workload_capabilities(channel::Profile profile);

// Every capability this kernel knows and `keep` lacks leaves the bounding set: no program executed
// from here on can have it.
Status limit_bounding_set(CapabilitySet keep);
// Permitted and effective become `set`, inheritable and ambient empty.
Status set_capabilities(CapabilitySet set);

}  // namespace sandbox::guest
