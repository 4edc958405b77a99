#include "store/home.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/file.h"

namespace sandbox {
namespace {

class HomeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/home_test_XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    base_ = folder;
  }
  void TearDown() override { (void)remove_tree(base_); }
  std::string base_;
};

unsigned mode_of(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? st.st_mode & 0777U : 0;
}

TEST_F(HomeTest, EveryFolderIsPrivate) {
  auto home = Home::open_at(base_ + "/a/b");
  ASSERT_TRUE(home);
  EXPECT_EQ(mode_of(base_ + "/a/b"), 0700U);
  for (auto dir : {home->kernel_dir(), home->images_dir(), home->boot_dir(), home->runs_dir()}) {
    ASSERT_TRUE(dir);
    EXPECT_EQ(mode_of(*dir), 0700U);
  }
}

TEST_F(HomeTest, AnOpenFolderIsClosedToOthers) {
  ASSERT_EQ(::mkdir((base_ + "/open").c_str(), 0755), 0);
  ASSERT_EQ(::chmod((base_ + "/open").c_str(), 0755), 0);
  ASSERT_TRUE(Home::open_at(base_ + "/open"));
  EXPECT_EQ(mode_of(base_ + "/open"), 0700U);
}

TEST_F(HomeTest, AFileInTheWayIsAnError) {
  ASSERT_TRUE(write_file_atomic(base_ + "/file", "x"));
  EXPECT_FALSE(Home::open_at(base_ + "/file"));
}

TEST(SandboxName, TakesOnlyWhatIsSafeAsAFolderAndAHostName) {
  for (const auto good : {"a", "web-1", "x.y_z", "0abc"})
    EXPECT_TRUE(check_sandbox_name(good)) << good;
  for (const auto bad : {"", "-a", ".a", "A", "a/b", "..", "a b", "a\n", "é"})
    EXPECT_FALSE(check_sandbox_name(bad)) << bad;
  EXPECT_FALSE(check_sandbox_name(std::string(64, 'a')));
}

}  // namespace
}  // namespace sandbox
