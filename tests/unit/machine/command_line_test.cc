#include "machine/command_line.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"

namespace sandbox {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += word + "\n";
  return out;
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(SANDBOX_TEST_DATA) + "/machine/" + name;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file_atomic(path, text, 0644));
  }
  const auto golden = read_file(path);
  ASSERT_TRUE(golden) << path;
  EXPECT_EQ(*golden, text) << "UPDATE_GOLDEN=1 accepts it";
}

QemuFds some_fds() {
  return {10, 11, 12, 13, 14, 15, {{16, 17, false}, {18, -1, true}}};
}

TEST(CommandLine, RestoringUnderEmulationIsTheGoldenFile) {
  expect_golden("restore-tcg.args",
                joined(qemu_arguments({4096, 2, Accel::kTcg}, some_fds(), FromState{})));
}

TEST(CommandLine, BootingUnderKvmIsTheGoldenFile) {
  expect_golden("boot-kvm.args",
                joined(qemu_arguments({1024, 1, Accel::kKvm}, {10, 11, 12, 13, 14, 15, {}},
                                      FromKernel{16, 17})));
}

TEST(CommandLine, EverySlotHasItsControllerWhateverDisksThereAre) {
  for (size_t disks = 0; disks <= kDiskSlots; ++disks) {
    QemuFds fds{10, 11, 12, 13, 14, 15, {}};
    for (size_t i = 0; i < disks; ++i) fds.disks.push_back({20 + static_cast<int>(i), -1, false});
    size_t controllers = 0;
    for (const auto& word : qemu_arguments({}, fds, FromState{}))
      if (word.starts_with("virtio-blk-pci,")) ++controllers;
    EXPECT_EQ(controllers, kDiskSlots);
  }
}

TEST(CommandLine, NoArgumentNamesAFileOfTheHost) {
  for (const auto& word : qemu_arguments({}, some_fds(), FromKernel{30, 31})) {
    const size_t slash = word.find('/');
    if (slash == std::string::npos) continue;
    const bool by_descriptor = word.compare(slash, 14, "/proc/self/fd/") == 0 ||
                               word.compare(slash, 11, "/dev/fdset/") == 0;
    EXPECT_TRUE(by_descriptor) << word;
  }
}

}  // namespace
}  // namespace sandbox
