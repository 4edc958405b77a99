#pragma once
// Which execution engine a sandbox gets: KVM where it really works, else QEMU's own translator
// (TCG).

#include <string>
#include <string_view>

namespace sandbox {

enum class Accel { kKvm, kTcg };

struct AccelChoice {
  Accel accel = Accel::kTcg;
  // Why not KVM, a sentence ("/dev/kvm: Permission denied"), and what would change that. Empty
  // under KVM.
  std::string reason = {};
  std::string hint = {};
};

// Opens /dev/kvm and creates a VM for a moment: inside many clouds the device exists and refuses
// exactly that.
AccelChoice choose_accel();

std::string_view accel_name(Accel accel);  // "kvm", "tcg"

}  // namespace sandbox
