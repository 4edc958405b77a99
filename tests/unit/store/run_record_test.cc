#include "store/run_record.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sandbox {
namespace {

class RunRecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/run_record_test_XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    base_ = folder;
    home_.emplace(*Home::open_at(base_));
  }
  void TearDown() override { (void)remove_tree(base_); }
  std::string base_;
  std::optional<Home> home_;
};

TEST_F(RunRecordTest, ANameIsClaimedOnce) {
  auto first = claim_run(*home_, "x");
  ASSERT_TRUE(first);
  const auto second = claim_run(*home_, "x");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kExists);
  EXPECT_NE(second.error().message.find("already running, use exec"), std::string::npos);
}

TEST_F(RunRecordTest, AnEndedNameIsReusable) {
  { ASSERT_TRUE(claim_run(*home_, "x")); }
  EXPECT_TRUE(claim_run(*home_, "x"));
}

TEST_F(RunRecordTest, UnnamedRunsGetDifferentNames) {
  std::string one, two;
  const auto first = claim_unnamed_run(*home_, "builtin", one);
  const auto second = claim_unnamed_run(*home_, "builtin", two);
  ASSERT_TRUE(first && second);
  EXPECT_NE(one, two);
  EXPECT_TRUE(one.starts_with("builtin-"));
}

TEST_F(RunRecordTest, TellsRunningEndedAndKilledApart) {
  auto alive = claim_run(*home_, "alive");
  ASSERT_TRUE(alive);
  RunRecord record;
  record.state = "running";
  ASSERT_TRUE(write_run_record_file(alive->dir, record));
  {
    auto killed = claim_run(*home_, "killed");
    ASSERT_TRUE(killed && write_run_record_file(killed->dir, record));
    auto ended = claim_run(*home_, "ended");
    record.state = "ended";
    ASSERT_TRUE(ended && write_run_record_file(ended->dir, record));
  }
  const auto runs = list_runs(*home_);
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 3U);
  EXPECT_TRUE((*runs)[0].alive);
  EXPECT_FALSE((*runs)[0].leftover);
  EXPECT_FALSE((*runs)[1].alive || (*runs)[1].leftover);
  EXPECT_TRUE((*runs)[2].leftover);
}

TEST_F(RunRecordTest, KeepsEveryField) {
  RunRecord record;
  record.name = "n";
  record.image = "i";
  record.command = {"a", "b \"c\""};
  record.allow = {"x"};
  record.deny = {"y"};
  record.state = "failed";
  record.failure = "why";
  record.created_ns = 1'700'000'000'000'000'001;
  record.ended_ns = record.created_ns + 5;
  ASSERT_TRUE(write_run_record_file(base_, record));
  const auto back = read_run_record_file(base_);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->command, record.command);
  EXPECT_EQ(back->created_ns, record.created_ns);
  EXPECT_EQ(back->ended_ns, record.ended_ns);
  EXPECT_EQ(back->failure, "why");
}

}  // namespace
}  // namespace sandbox
