#pragma once
// QEMU's command line as a pure function. The same arguments make a boot state and restore it,
// except for the kernel and -incoming: QEMU needs every device, size and model to be equal and
// checks only some of them.

#include <string>
#include <variant>
#include <vector>

#include "machine/shape.h"

namespace sandbox {

// Descriptor numbers as QEMU will see them.
struct QemuDisk {
  int overlay;
  int base = -1;  // none: the overlay stands alone
  bool durable = false;
};
struct QemuFds {
  int qmp;
  int network;
  int ctl;
  int fs;
  int console;
  int ram;
  std::vector<QemuDisk> disks;
};

struct FromState {};  // waits for migrate-incoming
struct FromKernel {
  int kernel;
  int initrd;
};
using BootFrom = std::variant<FromState, FromKernel>;

// Without argv[0].
std::vector<std::string> qemu_arguments(const MachineShape& shape, const QemuFds& fds,
                                        const BootFrom& boot);

extern const char* const kKernelCommandLine;
// The address every boot state is made with; the guest is told its own afterwards.
inline constexpr const char* kTemplateMac = "52:54:00:12:34:56";

}  // namespace sandbox
