#include "files/share.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "unit/files/temp_tree.h"

namespace sandbox::files {
namespace {

namespace fs = std::filesystem;

class SharePathTest : public ::testing::Test {
 protected:
  SharePathTest() {
    fs::create_directories(temp_.path() / "home/u/project");
    fs::create_directories(temp_.path() / "home/u/.sandbox/boxes");
  }
  Result<SharePath> check(const fs::path& path) {
    return check_share_path(path, temp_.path() / "home/u", temp_.path() / "home/u/.sandbox");
  }
  TempTree temp_;
};

TEST_F(SharePathTest, AProjectIsSharedUnderItsRealPath) {
  fs::create_directory_symlink("project", temp_.path() / "home/u/link");
  const auto share = check(temp_.path() / "home/u/link/../link/");
  ASSERT_TRUE(share.has_value()) << share.error().message;
  EXPECT_EQ(share->path, (temp_.path() / "home/u/project").string());
  EXPECT_TRUE(share->is_directory);
}

TEST_F(SharePathTest, ARegularFileIsSharedAlone) {
  std::ofstream(temp_.path() / "home/u/.gitconfig") << "x";
  const auto share = check(temp_.path() / "home/u/.gitconfig");
  ASSERT_TRUE(share.has_value());
  EXPECT_FALSE(share->is_directory);
}

TEST_F(SharePathTest, WhatNobodyMeansToShareIsRefused) {
  fs::create_directory_symlink("/", temp_.path() / "home/u/root");
  fs::create_directory_symlink(temp_.path() / "home/u", temp_.path() / "home/u/project/back");
  ::mkfifo((temp_.path() / "home/u/fifo").c_str(), 0600);
  const fs::path refused[] = {"/",
                              "/..",
                              "/proc",
                              "/proc/self",
                              "/sys",
                              "/dev",
                              "/dev/null",
                              temp_.path(),
                              temp_.path() / "home",
                              temp_.path() / "home/u",
                              temp_.path() / "home/u/project/..",
                              temp_.path() / "home/u/.sandbox",
                              temp_.path() / "home/u/.sandbox/boxes",
                              temp_.path() / "home/u/root",
                              temp_.path() / "home/u/project/back",
                              temp_.path() / "home/u/fifo"};
  for (const fs::path& path : refused) {
    const auto share = check(path);
    ASSERT_FALSE(share.has_value()) << path;
    EXPECT_EQ(share.error().code, Code::kInvalid) << path;
  }
}

TEST_F(SharePathTest, AnAbsentPathIsNotFound) {
  EXPECT_EQ(check(temp_.path() / "nothing").error().code, Code::kNotFound);
  EXPECT_FALSE(check("").has_value());
}

TEST_F(SharePathTest, AWorktreeNamesTheRepositoryItNeeds) {
  const fs::path main = temp_.path() / "home/u/main";
  const fs::path tree = temp_.path() / "home/u/project";
  fs::create_directories(main / ".git/worktrees/project");
  std::ofstream(main / ".git/worktrees/project/commondir") << "../..\n";
  std::ofstream(tree / ".git") << "gitdir: ../main/.git/worktrees/project\n";
  EXPECT_EQ(git_directory_outside(tree), (main / ".git").string());
}

TEST_F(SharePathTest, AnOrdinaryCheckoutNeedsNothingMore) {
  fs::create_directories(temp_.path() / "home/u/project/.git");
  EXPECT_EQ(git_directory_outside(temp_.path() / "home/u/project"), std::nullopt);
}

TEST_F(SharePathTest, AGitFileThatLeadsNowhereNeedsNothingMore) {
  const fs::path tree = temp_.path() / "home/u/project";
  for (const char* content :
       {"", "gitdir:", "gitdir: /nonexistent", "something else", "gitdir: ."}) {
    std::ofstream(tree / ".git") << content;
    EXPECT_EQ(git_directory_outside(tree), std::nullopt) << content;
  }
}

}  // namespace
}  // namespace sandbox::files
