#include "guest/root_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"

namespace sandbox::guest {
namespace {

namespace fs = std::filesystem;

// A hostile image in a directory, and a file outside that its links point at.
class RootDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/root_dir_test.XXXXXX";
    base_ = ::mkdtemp(name);
    fs::create_directories(base_ / "root/etc");
    std::ofstream(base_ / "outside") << "untouched";
    root_ = RootDir(*open_file((base_ / "root").string(), O_PATH | O_DIRECTORY));
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string content(const fs::path& below) { return *read_file((base_ / below).string()); }

  fs::path base_;
  RootDir root_;
};

TEST_F(RootDirTest, ReplacesALinkInsteadOfFollowingIt) {
  fs::create_symlink(base_ / "outside", base_ / "root/etc/hosts");
  ASSERT_TRUE(root_.replace("/etc/hosts", "new", 0644));
  EXPECT_EQ(content("root/etc/hosts"), "new");
  EXPECT_EQ(content("outside"), "untouched");
  EXPECT_FALSE(fs::is_symlink(base_ / "root/etc/hosts"));
}

TEST_F(RootDirTest, KeepsDirectoryLinksInside) {
  fs::create_symlink(base_, base_ / "root/escape");            // absolute
  fs::create_symlink("../../../../../..", base_ / "root/up");  // relative
  ASSERT_TRUE(root_.replace("/up/made", "x", 0644));
  EXPECT_TRUE(fs::exists(base_ / "root/made")) << "above the root is the root";
  EXPECT_FALSE(root_.exists("/escape/outside"));
  EXPECT_FALSE(root_.read("/up/outside"));
}

TEST_F(RootDirTest, ReadsRegularFilesOnlyAndWithinTheLimit) {
  ASSERT_EQ(::mkfifo((base_ / "root/etc/fifo").c_str(), 0644), 0);
  EXPECT_FALSE(root_.read("/etc/fifo"));
  EXPECT_FALSE(root_.read("/etc"));
  ASSERT_TRUE(root_.replace("/etc/f", "12345", 0600));
  EXPECT_EQ(*root_.read("/etc/f"), "12345");
  EXPECT_FALSE(root_.read("/etc/f", 4));
  EXPECT_EQ(root_.read("/etc/none").error().code, Code::kNotFound);
}

TEST_F(RootDirTest, TellsAnAbsentFileFromOneThatCannotBeRead) {
  EXPECT_EQ(*root_.read_if_there("/etc/passwd"), std::nullopt);
  ASSERT_TRUE(root_.replace("/etc/passwd", "root", 0644));
  EXPECT_EQ(*root_.read_if_there("/etc/passwd"), "root");
  ASSERT_TRUE(root_.replace("/etc/passwd", std::string((1U << 20) + 1, 'x'), 0644));
  EXPECT_FALSE(root_.read_if_there("/etc/passwd"));
}

TEST_F(RootDirTest, FindsAFileBehindAParentLinkWhileOthersAreRenamed) {
  fs::create_directories(base_ / "root/usr/etc");
  std::ofstream(base_ / "root/usr/etc/passwd") << "root";
  fs::create_symlink("../usr/etc/passwd", base_ / "root/etc/passwd");
  const std::jthread renames([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) (void)root_.replace("/etc/hosts", "", 0644);
  });
  size_t absent = 0;
  for (int i = 0; i < 100'000; ++i) absent += root_.exists("/etc/passwd") ? 0 : 1;
  EXPECT_EQ(absent, 0U);
}

TEST_F(RootDirTest, MakesDirectoriesAndMountPoints) {
  EXPECT_TRUE(root_.make_directory("/a/b/c/"));
  EXPECT_TRUE(fs::is_directory(base_ / "root/a/b/c"));
  EXPECT_TRUE(root_.make_directory("/a/b"));
  EXPECT_TRUE(root_.make_file("/a/new/file"));
  EXPECT_TRUE(fs::is_regular_file(base_ / "root/a/new/file"));
  EXPECT_TRUE(root_.make_file("/a/new/file"));
  EXPECT_FALSE(root_.make_directory("/a/new/file/below"));
}

TEST_F(RootDirTest, RewriteKeepsTheMode) {
  ASSERT_TRUE(root_.replace("/etc/shadow", "long content", 0640));
  ASSERT_TRUE(root_.rewrite("/etc/shadow", "short"));
  EXPECT_EQ(content("root/etc/shadow"), "short");
  EXPECT_EQ(fs::status(base_ / "root/etc/shadow").permissions(), static_cast<fs::perms>(0640));
}

TEST_F(RootDirTest, LinksOnlyWhereNothingStands) {
  ASSERT_TRUE(root_.link("/workspace", "/home/u"));
  EXPECT_EQ(fs::read_symlink(base_ / "root/workspace"), "/home/u");
  ASSERT_TRUE(root_.link("/etc", "/elsewhere"));
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(base_ / "root/etc")));
}

TEST_F(RootDirTest, RemovesALinkAndNotItsTarget) {
  fs::create_symlink(base_ / "outside", base_ / "root/etc/link");
  root_.remove("/etc/link");
  EXPECT_FALSE(fs::is_symlink(base_ / "root/etc/link"));
  EXPECT_TRUE(fs::exists(base_ / "outside"));
}

}  // namespace
}  // namespace sandbox::guest
