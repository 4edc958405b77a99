#include "cli/asker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::cli {
namespace {

using Key = QuestionQueue::Key;

TEST(QuestionQueue, ShowsTheOldestAndHowManyWait) {
  QuestionQueue queue;
  EXPECT_EQ(queue.prompt(), "");
  queue.add({1, "a.example.org", "look up a.example.org"});
  EXPECT_EQ(queue.prompt(),
            "sandbox asks: look up a.example.org? [o]nce [s]ession [a]lways [d]eny ");
  queue.add({2, "b.example.org", "look up b.example.org"});
  queue.add({2, "b.example.org", "look up b.example.org"});  // told twice
  queue.add({3, "c.example.org", "look up c.example.org"});
  EXPECT_EQ(queue.prompt(),
            "sandbox asks: look up a.example.org? [o]nce [s]ession [a]lways [d]eny (2 more "
            "waiting) ");
}

TEST(QuestionQueue, AnAnsweredOneGivesWayToTheNextAndOneThatExpiredIsNeverShown) {
  QuestionQueue queue;
  for (uint64_t id : {1, 2, 3}) queue.add({id, "r", "t"});
  EXPECT_FALSE(queue.over(2));
  EXPECT_FALSE(queue.over(7));
  EXPECT_TRUE(queue.over(1));
  ASSERT_NE(queue.current(), nullptr);
  EXPECT_EQ(queue.current()->id, 3U);
  EXPECT_TRUE(queue.over(3));
  EXPECT_EQ(queue.current(), nullptr);
}

// The text comes by way of a process that reads hostile frames.
TEST(QuestionQueue, NothingInAQuestionDrivesTheTerminalOrFillsIt) {
  QuestionQueue queue;
  queue.add({1, "r", "look up \x1b[2J" + std::string(5000, 'x')});
  EXPECT_EQ(queue.prompt().find('\x1b'), std::string::npos);
  EXPECT_LT(queue.prompt().size(), 400U);
}

TEST(QuestionQueue, OneKeyAnswersAndOthersMeanNothing) {
  EXPECT_EQ(QuestionQueue::key('o'), Key::kOnce);
  EXPECT_EQ(QuestionQueue::key('S'), Key::kSession);
  EXPECT_EQ(QuestionQueue::key('a'), Key::kAlways);
  EXPECT_EQ(QuestionQueue::key('d'), Key::kDeny);
  EXPECT_EQ(QuestionQueue::key('\x03'), Key::kDeny);
  for (const char other : {'y', 'n', ' ', '\r', '\n', '\x1b', '\0'})
    EXPECT_EQ(QuestionQueue::key(other), std::nullopt);
}

constexpr Instant kShown{10s};

TEST(AnswerKeys, AKeyIsHeardHalfASecondAfterTheQuestionIsShown) {
  AnswerKeys keys;
  keys.shown(kShown);
  EXPECT_EQ(keys.take("o", kShown), std::nullopt);
  EXPECT_EQ(keys.take("o", kShown + 499ms), std::nullopt);
  EXPECT_EQ(keys.take("o", kShown + 500ms), Key::kOnce);
  EXPECT_EQ(keys.take("ddd", kShown + 500ms), Key::kDeny) << "held down";
}

// "\x1b]11;?\a" asks a terminal for its colour, which the command can have set before.
TEST(AnswerKeys, WhatATerminalAnswersToTheCommandIsNoKeyHoweverLateAndInWhateverPieces) {
  const std::string colour = "\x1b]11;rgb:aaaa/aaaa/aaaa\x1b\\";
  for (size_t piece = 1; piece <= colour.size(); ++piece) {
    AnswerKeys keys;
    keys.shown(kShown);
    Instant now = kShown + 3s;
    for (size_t at = 0; at < colour.size(); at += piece, now = now + 10ms)
      EXPECT_EQ(keys.take(colour.substr(at, piece), now), std::nullopt) << piece << " at " << at;
    EXPECT_EQ(keys.take("a", now + AnswerKeys::kDeaf), Key::kAlways) << "the control";
  }
}

TEST(AnswerKeys, AWordIsNoAnswer) {
  AnswerKeys keys;
  keys.shown(kShown);
  for (const char* word : {"ad", "oh no", "n", "\n"})
    EXPECT_EQ(keys.take(word, kShown + 3s), std::nullopt) << word;
}

}  // namespace
}  // namespace sandbox::cli
