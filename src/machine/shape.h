#pragma once
// What must be equal when a boot state is made and when it is restored.

#include <cstdint>

#include "machine/accel.h"

namespace sandbox {

struct MachineShape {
  uint64_t memory_mib = 4096;  // at least 256
  unsigned cpus = 2;           // 1 to 64
  Accel accel = Accel::kTcg;
};

inline constexpr uint64_t kDiskBytes = uint64_t{64} << 30;  // every disk, see disk.h
inline constexpr unsigned kDiskSlots = 4;  // vda root, vdb docker, vdc and vdd spare

}  // namespace sandbox
