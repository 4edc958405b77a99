#include "cli/share_args.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace sandbox::cli {
namespace {

// A home, a project beside it, and the process standing in the project.
class ShareArgsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/share_args_test_XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    base_ = folder;
    for (const char* name : {"/home", "/project", "/project/data"})
      ASSERT_EQ(::mkdir((base_ + name).c_str(), 0700), 0);
    ASSERT_TRUE(write_file_atomic(base_ + "/project/one", "1"));
    ::setenv("HOME", (base_ + "/home").c_str(), 1);
    home_.emplace(*Home::open_at(base_ + "/home/.sandbox"));
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(base_ + "/project");
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    (void)remove_tree(base_);
  }
  Result<Shares> plan(std::optional<std::string> workspace, std::vector<std::string> mounts = {}) {
    return plan_shares(*home_, workspace, mounts);
  }
  std::string base_;
  std::filesystem::path before_;
  std::optional<Home> home_;
};

TEST_F(ShareArgsTest, TheWorkingDirectoryIsSharedAtItsOwnPath) {
  const auto shares = plan(std::nullopt);
  ASSERT_TRUE(shares);
  ASSERT_EQ(shares->list.size(), 1U);
  EXPECT_EQ(shares->list[0].host_path, base_ + "/project");
  EXPECT_EQ(shares->list[0].guest_path, base_ + "/project");
  EXPECT_EQ(shares->workspace, base_ + "/project");
}

TEST_F(ShareArgsTest, AHomeDirectoryIsNotSharedUnasked) {
  std::filesystem::current_path(base_ + "/home");
  const auto shares = plan(std::nullopt);
  ASSERT_TRUE(shares);
  EXPECT_TRUE(shares->list.empty());
  ASSERT_EQ(shares->notes.size(), 1U);
  EXPECT_NE(shares->notes[0].find("no workspace is shared"), std::string::npos);
}

TEST_F(ShareArgsTest, AnExplicitWorkspaceIsMountedAtWorkspace) {
  const auto shares = plan("data");
  ASSERT_TRUE(shares);
  EXPECT_EQ(shares->list[0].guest_path, "/workspace");
  EXPECT_EQ(shares->list[0].host_path, base_ + "/project/data");
}

TEST_F(ShareArgsTest, MountsCarryModeAndKind) {
  const auto shares = plan("data", {"one:/x/one:ro", ".:/y"});
  ASSERT_TRUE(shares) << shares.error().message;
  ASSERT_EQ(shares->list.size(), 3U);
  for (const ShareSpec& share : shares->list) {
    const bool is_file = share.guest_path == "/x/one";
    EXPECT_EQ(share.single_file, is_file) << share.guest_path;
    EXPECT_EQ(share.read_only, is_file) << share.guest_path;
  }
}

TEST_F(ShareArgsTest, OuterMountPointsComeFirst) {
  const auto shares = plan("data", {"data:/a/b/c", ".:/a"});
  ASSERT_TRUE(shares);
  EXPECT_EQ(shares->list.front().guest_path, "/a");
}

TEST_F(ShareArgsTest, RefusesWhatCannotBeMeant) {
  for (const auto bad :
       {"one", "one:", ":/x", "one:x", "one:/x:rx", "one:/x:ro:ro", "one:/", "one:/usr",
        "one:/x/../y", "one:/x/", "one:/x//y", "missing:/x", "/:/x", "one:/x:copy"})
    EXPECT_FALSE(plan("data", {bad})) << bad;
  EXPECT_FALSE(plan("data", {"one:/x", ".:/x"}));
  EXPECT_FALSE(plan("one"));
  EXPECT_FALSE(plan(base_ + "/home"));
}

}  // namespace
}  // namespace sandbox::cli
