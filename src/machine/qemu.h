#pragma once
// The QEMU of this host.

#include <string>
#include <vector>

#include "base/result.h"

namespace sandbox {

struct Qemu {
  std::string binary;  // real path, no symbolic link
  // What it must be able to read while it starts, and what its behaviour depends on: libraries,
  // firmware, /dev/null. All of it is unmounted again before the guest runs.
  std::vector<std::string> binds;
};

// kUnavailable with the install command as hint when there is none.
Result<Qemu> find_qemu();

// "QEMU emulator version 7.2.22 (Debian …)"; runs it, so not on the way of a start.
Result<std::string> qemu_version(const Qemu& qemu);

}  // namespace sandbox
