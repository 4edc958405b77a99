#include "guest/capabilities.h"

#include <gtest/gtest.h>
#include <linux/capability.h>

namespace sandbox::guest {
namespace {

using channel::Profile;

bool has(Profile profile, int capability) {
  return (workload_capabilities(profile) >> capability & 1U) != 0;
}

TEST(WorkloadCapabilities, NeverReachTheKernelItself) {
  for (const Profile profile : {Profile::kDev, Profile::kHardened, Profile::kPrivileged}) {
    for (const int capability : {CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT})
      EXPECT_FALSE(has(profile, capability)) << capability;
  }
}

TEST(WorkloadCapabilities, OfDevInstallSoftwareAndMountNothing) {
  for (const int capability :
       {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_SETUID, CAP_NET_RAW, CAP_SYS_PTRACE})
    EXPECT_TRUE(has(Profile::kDev, capability)) << capability;
  for (const int capability : {CAP_SYS_ADMIN, CAP_MKNOD, CAP_SYS_TIME, CAP_DAC_READ_SEARCH,
                               CAP_SYS_RESOURCE, CAP_BPF, CAP_PERFMON, CAP_SYSLOG})
    EXPECT_FALSE(has(Profile::kDev, capability)) << capability;
}

TEST(WorkloadCapabilities, OfHardenedAreNone) {
  EXPECT_EQ(workload_capabilities(Profile::kHardened), 0U);
}

TEST(WorkloadCapabilities, OfPrivilegedCanRunContainers) {
  for (const int capability : {CAP_SYS_ADMIN, CAP_MKNOD, CAP_NET_ADMIN})
    EXPECT_TRUE(has(Profile::kPrivileged, capability)) << capability;
}

}  // namespace
}  // namespace sandbox::guest
