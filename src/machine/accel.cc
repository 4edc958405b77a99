#include "machine/accel.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace sandbox {

std::string_view accel_name(Accel accel) {
  return accel == Accel::kKvm ? "kvm" : "tcg";
}

namespace {

// VMX or SVM. Some clouds offer a /dev/kvm without either, for guests made for it: there an
// ordinary kernel is interpreted instruction by instruction and gets nowhere.
bool processor_virtualizes() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kVmx = 1U << 5;
  constexpr unsigned kSvm = 1U << 2;
  if (::__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kVmx) != 0) return true;
  return ::__get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & kSvm) != 0;
#else
  return true;
#endif
}

// Run by root, QEMU becomes nobody with the device's group (launcher.cc).
bool nobody_may_open(int device) {
  struct stat st {};
  if (::fstat(device, &st) < 0) return false;
  return (st.st_mode & 06) == 06 || (st.st_gid != 0 && (st.st_mode & 060) == 060);
}

}  // namespace

AccelChoice choose_accel() {
  const auto device = open_file("/dev/kvm", O_RDWR);
  if (!device) {
    if (device.error().code == Code::kPermission)
      return {Accel::kTcg, "/dev/kvm may not be opened by this user",
              "add yourself to its group: sudo adduser $USER kvm, then log in again"};
    return {Accel::kTcg, "this machine has no /dev/kvm",
            "enable virtualization in its firmware, or nested virtualization in the hypervisor it "
            "runs on"};
  }
  if (!processor_virtualizes())
    return {Accel::kTcg, "this machine's processor offers no virtualization (vmx, svm)",
            "enable it in the firmware, or nested virtualization in the hypervisor this machine "
            "runs on"};
  if (::geteuid() == 0 && !nobody_may_open(device->get()))
    return {Accel::kTcg, "/dev/kvm is for root alone, and QEMU never runs as root",
            "sudo chgrp kvm /dev/kvm && sudo chmod 660 /dev/kvm"};
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
