#include "store/allow_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/file.h"

namespace sandbox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class AllowListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/allow_list_test_XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    home_ = *Home::open_at(folder);
  }
  void TearDown() override { (void)remove_tree(home_->root()); }
  void write(std::string_view text) {
    ASSERT_TRUE(write_file_atomic(allow_list_path(*home_), text));
  }
  std::optional<Home> home_;
};

TEST_F(AllowListTest, NoFileIsNoRules) {
  EXPECT_TRUE(read_allow_list(*home_)->empty());
}

TEST_F(AllowListTest, ReadsOneRuleALineAndPassesOverTheRest) {
  write("# always\n\n  *.Example.org:443  \n10.0.0.0/8");
  EXPECT_THAT(*read_allow_list(*home_), ElementsAre("*.example.org:443", "10.0.0.0/8"));
}

TEST_F(AllowListTest, ALineThatIsNoRuleIsNamedAndNothingIsRead) {
  write("a.example.org\na.*.b\n");
  const auto rules = read_allow_list(*home_);
  ASSERT_FALSE(rules);
  EXPECT_THAT(rules.error().message, HasSubstr("allow, line 2: 'a.*.b'"));
  EXPECT_FALSE(add_to_allow_list(*home_, "b.example.org"));
}

TEST_F(AllowListTest, ARuleIsAddedOnceAtItsEndAndTheRestStays) {
  write("# mine\na.example.org");
  EXPECT_TRUE(*add_to_allow_list(*home_, "b.example.org:443"));
  EXPECT_FALSE(*add_to_allow_list(*home_, "b.example.org:443"));
  EXPECT_EQ(*read_file(allow_list_path(*home_)), "# mine\na.example.org\nb.example.org:443\n");
  struct stat st {};
  ASSERT_EQ(::stat(allow_list_path(*home_).c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
}

// What is added was proposed by a process that reads hostile frames.
TEST_F(AllowListTest, WhatIsNoRuleOrMoreThanOneIsNotAdded) {
  for (const char* word : {"", "a.*.b", "a.example.org\n*.example.net", "# a.example.org"})
    EXPECT_FALSE(add_to_allow_list(*home_, word)) << word;
  EXPECT_FALSE(read_file(allow_list_path(*home_)));
  EXPECT_TRUE(*add_to_allow_list(*home_, "A.Example.org."));
  EXPECT_EQ(*read_file(allow_list_path(*home_)), "a.example.org\n");
}

}  // namespace
}  // namespace sandbox
