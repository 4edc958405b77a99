#include "guest/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace sandbox::guest {
namespace {

constexpr CapabilitySet set_of(std::initializer_list<int> capabilities) {
  CapabilitySet set = 0;
  for (const int capability : capabilities) set |= CapabilitySet{1} << capability;
  return set;
}

constexpr CapabilitySet kAll = (CapabilitySet{1} << (CAP_LAST_CAP + 1)) - 1;

// Software installs, debuggers, servers on low ports, raw sockets and its own routes; nothing that
// mounts, makes device nodes, loads code into the kernel, sets the clock or lifts resource limits.
constexpr CapabilitySet kDev =
    set_of({CAP_CHOWN,         CAP_DAC_OVERRIDE, CAP_FOWNER,   CAP_FSETID,   CAP_KILL,
            CAP_SETGID,        CAP_SETUID,       CAP_SETPCAP,  CAP_SETFCAP,  CAP_NET_BIND_SERVICE,
            CAP_NET_BROADCAST, CAP_NET_ADMIN,    CAP_NET_RAW,  CAP_IPC_LOCK, CAP_IPC_OWNER,
            CAP_SYS_CHROOT,    CAP_SYS_PTRACE,   CAP_SYS_NICE, CAP_LEASE,    CAP_AUDIT_WRITE});

constexpr CapabilitySet kPrivileged = kAll & ~set_of({CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT});

}  // namespace

CapabilitySet workload_capabilities(channel::Profile profile) {
  switch (profile) {
    case channel::Profile::kDev:
      return kDev;
    case channel::Profile::kPrivileged:
      return kPrivileged;
    case channel::Profile::kHardened:
      break;
  }
  return 0;
}

Status limit_bounding_set(CapabilitySet keep) {
  // A kernel newer than our headers has more: go on until it says there is none (EINVAL).
  for (unsigned long capability = 0; capability < 64; ++capability) {
    if ((keep >> capability & 1U) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0) continue;
    if (errno == EINVAL && capability > CAP_LAST_CAP) break;
    return fail_errno(errno, "drop a capability from the bounding set");
  }
  return {};
}

Status set_capabilities(CapabilitySet set) {
  (void)::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].effective = data[0].permitted = static_cast<uint32_t>(set);
  data[1].effective = data[1].permitted = static_cast<uint32_t>(set >> 32U);
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno(errno, "set capabilities");
  return {};
}

}  // namespace sandbox::guest
