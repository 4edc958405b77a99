#include "machine/accel.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace sandbox {

std::string_view accel_name(Accel accel) {
  return accel == Accel::kKvm ? "kvm" : "tcg";
}

AccelChoice choose_accel() {
  const auto device = open_file("/dev/kvm", O_RDWR);
  if (!device) {
    if (device.error().code == Code::kPermission)
      return {Accel::kTcg, "/dev/kvm may not be opened by this user",
              "add yourself to its group: sudo adduser $USER kvm, then log in again"};
    return {Accel::kTcg, "this machine has no /dev/kvm",
            "enable virtualization in its firmware, or nested virtualization in its hypervisor"};
  }
  const int version = ::ioctl(device->get(), KVM_GET_API_VERSION, 0);
  if (version != KVM_API_VERSION)
    return {Accel::kTcg,
            fmt::format("/dev/kvm speaks version {}, not {}", version, KVM_API_VERSION)};
  const Fd machine(::ioctl(device->get(), KVM_CREATE_VM, 0));
  if (!machine)
    return {Accel::kTcg,
            fmt::format("/dev/kvm exists but refuses to create a VM ({})", std::strerror(errno)),
            "this machine is itself a VM without nested virtualization; its owner can enable that"};
  return {Accel::kKvm, {}, {}};
}

}  // namespace sandbox
