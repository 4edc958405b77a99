#include "machine/initramfs.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

namespace sandbox {
namespace {

class InitramfsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ASSERT_TRUE(write_file_atomic(path("sentry"), "#!sentry", 0755));
    ASSERT_TRUE(write_file_atomic(path("a.ko"), "module a"));
    ASSERT_TRUE(write_file_atomic(path("b.ko"), "module bb"));
    kernel_.modules = {{"b.ko", path("b.ko"), ""}, {"a.ko", path("a.ko"), ""}};
  }
  void TearDown() override { (void)remove_tree(folder_); }
  [[nodiscard]] std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string folder_ = testing::TempDir() + "initramfs_XXXXXX";
  Kernel kernel_;
};

TEST_F(InitramfsTest, CpioReadsBackNamesModesAndContents) {
  if (!find_in_path("cpio")) GTEST_SKIP() << "cpio is not installed";
  const auto image = build_initramfs(kernel_, path("sentry"));
  ASSERT_TRUE(image) << image.error().message;
  ASSERT_TRUE(write_file_atomic(path("image"), as_text(*image)));
  const auto list = run_program({"cpio", "-itv", "--quiet", "-F", path("image")});
  ASSERT_TRUE(list);
  ASSERT_EQ(list->exit_code, 0) << list->err;
  EXPECT_NE(list->out.find("crw-------   1 root     root       5,   1"), std::string::npos)
      << list->out;
  const auto order =
      run_program({"cpio", "-i", "--quiet", "--to-stdout", "-F", path("image"), "modules/order"});
  ASSERT_TRUE(order);
  EXPECT_EQ(order->out, "b.ko\na.ko\n");
  const auto init =
      run_program({"cpio", "-i", "--quiet", "--to-stdout", "-F", path("image"), "init"});
  ASSERT_TRUE(init);
  EXPECT_EQ(init->out, "#!sentry");
}

TEST_F(InitramfsTest, TheSameInputsGiveTheSameBytes) {
  const auto one = build_initramfs(kernel_, path("sentry"));
  ASSERT_TRUE(write_file_atomic(path("sentry"), "#!sentry", 0755));  // another inode, another time
  const auto two = build_initramfs(kernel_, path("sentry"));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(*one, *two);
  ASSERT_TRUE(write_file_atomic(path("sentry"), "#!Sentry", 0755));
  const auto three = build_initramfs(kernel_, path("sentry"));
  ASSERT_TRUE(three);
  EXPECT_NE(*one, *three);
}

TEST_F(InitramfsTest, AMissingModuleIsAnErrorThatNamesIt) {
  kernel_.modules.push_back({"c.ko", path("c.ko"), ""});
  const auto image = build_initramfs(kernel_, path("sentry"));
  ASSERT_FALSE(image);
  EXPECT_NE(image.error().message.find("c.ko"), std::string::npos);
}

TEST(CpioWriter, EntriesAreAlignedAndClosedByTheTrailer) {
  CpioWriter writer;
  writer.file("f", 0644, as_bytes("12345"));
  const Bytes image = writer.finish();
  EXPECT_EQ(image.size() % 4, 0U);
  const std::string_view text = as_text(image);
  EXPECT_TRUE(text.starts_with("070701"));
  EXPECT_EQ(text.substr(6 + 8 * 6, 8), "00000005") << "file size is the seventh field";
  EXPECT_NE(text.find("TRAILER!!!"), std::string_view::npos);
}

}  // namespace
}  // namespace sandbox
