#include "machine/boot_inputs.h"

#include <gtest/gtest.h>

#include <set>

#include "base/file.h"

namespace sandbox {
namespace {

class BootInputsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    put("sentry", "s");
    put("qemu", "q");
    spec_.kernel.version = "6.12";
    spec_.kernel.sha256 = "k";
    spec_.kernel.modules = {{"m.ko", "", "m"}};
    spec_.sentry = folder_ + "/sentry";
    spec_.qemu.binary = folder_ + "/qemu";
  }
  void TearDown() override { (void)remove_tree(folder_); }
  void put(const char* name, const char* text) {
    ASSERT_TRUE(write_file_atomic(folder_ + "/" + name, text));
  }
  std::string inputs() {
    KnownDigests known = KnownDigests::load(folder_ + "/known");
    const auto text = boot_inputs(spec_, known);
    EXPECT_TRUE(text) << text.error().message;
    return text ? *text : "";
  }
  std::string folder_ = testing::TempDir() + "inputs_XXXXXX";
  BootSpec spec_;
};

TEST_F(BootInputsTest, AreTheSameForTheSame) {
  EXPECT_EQ(inputs(), inputs());
}

TEST_F(BootInputsTest, EveryInputCountsAndIsNamed) {
  const std::string before = inputs();
  const auto expect_changed = [&](const char* name) {
    const std::string now = inputs();
    EXPECT_NE(before, now) << name;
    EXPECT_EQ(first_difference(before, now), name);
  };
  const BootSpec original = spec_;
  spec_.kernel.sha256 = "other";
  expect_changed("kernel");
  spec_ = original;
  spec_.kernel.modules[0].sha256 = "other";
  expect_changed("module");
  spec_ = original;
  spec_.kernel.modules.clear();
  expect_changed("qemu");  // the line that stands where the module's stood
  spec_ = original;
  spec_.shape.memory_mib = 1024;
  expect_changed("argument");
  spec_ = original;
  spec_.shape.cpus = 3;
  expect_changed("argument");
  spec_ = original;
  put("sentry", "another");
  expect_changed("sentry");
  put("sentry", "s");
  put("qemu", "another");
  expect_changed("qemu");
}

TEST_F(BootInputsTest, UnderKvmTheProcessorCounts) {
  spec_.shape.accel = Accel::kKvm;
  const std::string text = inputs();
  EXPECT_NE(text.find("\nprocessor "), std::string::npos);
  EXPECT_NE(text.find("\nhost-kernel "), std::string::npos);
}

TEST_F(BootInputsTest, AMissingSentryIsAnError) {
  spec_.sentry = folder_ + "/absent";
  KnownDigests known = KnownDigests::load(folder_ + "/known");
  EXPECT_FALSE(boot_inputs(spec_, known));
}

}  // namespace
}  // namespace sandbox
