// Ask, on a virtual clock.
#include "gateway/questions.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::gateway {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

class QuestionsTest : public ::testing::Test {
 protected:
  void SetUp() override { questions_.set_on(true); }
  bool hold(const std::string& rule, const std::string& who = "") {
    return questions_.hold(
        *policy::HostPattern::parse(rule), "look up " + rule,
        [this, who] { resumed_.push_back(who); }, now_);
  }
  // Answers the question about a rule, and calls who waited as the gateway does.
  bool answer(const std::string& rule, bool allow) {
    for (const auto& [id, asked] : open_) {
      if (asked != rule) continue;
      const auto answered = questions_.answer(id, allow, now_);
      if (!answered) return false;
      for (const auto& resume : answered->waiting) resume();
      return true;
    }
    return false;
  }
  void pass(Duration time) {
    now_ = now_ + time;
    questions_.expire(now_);
  }

  Instant now_{std::chrono::hours(1)};
  std::map<uint64_t, std::string> open_;
  std::vector<std::string> resumed_;
  Questions questions_{{[this](const auto& question) { open_[question.id] = question.rule.text(); },
                        [this](uint64_t id) { open_.erase(id); }}};
};

TEST_F(QuestionsTest, WithNobodyToAskNothingIsHeld) {
  questions_.set_on(false);
  EXPECT_FALSE(hold("a.example.org"));
  EXPECT_TRUE(open_.empty());
}

TEST_F(QuestionsTest, EqualOnesAreOneQuestionAndAllWhoWaitAreCalled) {
  EXPECT_TRUE(hold("a.example.org", "A"));
  EXPECT_TRUE(hold("a.example.org", "AAAA"));
  EXPECT_TRUE(hold("a.example.org:80", "dial"));
  EXPECT_EQ(open_.size(), 2U);
  EXPECT_TRUE(answer("a.example.org", true));
  EXPECT_THAT(resumed_, ElementsAre("A", "AAAA"));
  EXPECT_EQ(open_.size(), 1U);
}

TEST_F(QuestionsTest, NoAnswerIn30SecondsIsANo) {
  EXPECT_EQ(questions_.next_deadline(), Instant::never());
  hold("a.example.org", "a");
  EXPECT_EQ(questions_.next_deadline(), now_ + seconds(30));
  pass(seconds(20));
  hold("b.example.org", "b");
  hold("a.example.org", "late");  // joins, and does not prolong
  pass(seconds(10) - 1ns);
  EXPECT_TRUE(resumed_.empty());
  pass(1ns);
  EXPECT_THAT(resumed_, ElementsAre("a", "late"));
  EXPECT_EQ(questions_.next_deadline(), now_ + seconds(20));
}

TEST_F(QuestionsTest, WhatWasRefusedIsNotAskedAgainForAMinute) {
  hold("a.example.org", "a");
  EXPECT_TRUE(answer("a.example.org", false));
  EXPECT_THAT(resumed_, ElementsAre("a"));
  pass(seconds(59));
  EXPECT_FALSE(hold("a.example.org"));
  EXPECT_TRUE(hold("b.example.org"));  // another is
  pass(seconds(1));
  EXPECT_TRUE(hold("a.example.org"));
}

TEST_F(QuestionsTest, WhatWasAllowedOnceIsAskedAgain) {
  hold("a.example.org");
  EXPECT_TRUE(answer("a.example.org", true));
  EXPECT_TRUE(hold("a.example.org"));
  EXPECT_EQ(open_.size(), 1U);
}

TEST_F(QuestionsTest, AFloodOfNamesIsBoundedAndSoIsThatOfOneName) {
  for (size_t i = 0; i < Questions::kMaxHeld; ++i)
    EXPECT_TRUE(hold(fmt::format("n{}.example.org", i)));
  EXPECT_FALSE(hold("one-more.example.org"));
  for (size_t i = 1; i < Questions::kMaxWaiting; ++i) EXPECT_TRUE(hold("n0.example.org"));
  EXPECT_FALSE(hold("n0.example.org"));
  EXPECT_EQ(open_.size(), Questions::kMaxHeld);
  EXPECT_TRUE(answer("n7.example.org", false));
  EXPECT_TRUE(hold("one-more.example.org"));
}

TEST_F(QuestionsTest, AQuestionIsAnsweredOnce) {
  hold("a.example.org", "a");
  const uint64_t id = open_.begin()->first;
  EXPECT_TRUE(questions_.answer(id, true, now_));
  EXPECT_FALSE(questions_.answer(id, true, now_));
  EXPECT_FALSE(questions_.answer(12345, true, now_));
}

TEST_F(QuestionsTest, ANewPolicyEndsWhatItDecidesAndNothingElse) {
  hold("a.example.org", "a");
  hold("b.example.org", "b");
  questions_.reconsider(
      [](const policy::HostPattern& rule) { return rule.text() == "b.example.org"; });
  EXPECT_THAT(resumed_, ElementsAre("b"));
  EXPECT_EQ(questions_.held(), 1U);
  EXPECT_TRUE(hold("b.example.org", "again"));
}

TEST_F(QuestionsTest, WhenNobodyIsLeftToAskAllAreLetGo) {
  hold("a.example.org", "a");
  hold("b.example.org", "b");
  questions_.set_on(false);
  EXPECT_THAT(resumed_, ElementsAre("a", "b"));
  EXPECT_TRUE(open_.empty());
}

// Who is called asks the gates again, and may come to be held once more.
TEST_F(QuestionsTest, WhoIsCalledMayAskAgain) {
  const auto rule = *policy::HostPattern::parse("a.example.org:80");
  ASSERT_TRUE(questions_.hold(
      *policy::HostPattern::parse("a.example.org"), "",
      [&] {
        EXPECT_TRUE(questions_.hold(
            rule, "", [this] { resumed_.emplace_back("second"); }, now_));
      },
      now_));
  pass(seconds(30));
  EXPECT_EQ(questions_.held(), 1U);
  pass(seconds(30));
  EXPECT_THAT(resumed_, ElementsAre("second"));
}

}  // namespace
}  // namespace sandbox::gateway
