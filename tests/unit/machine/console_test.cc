#include "machine/console.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace sandbox {
namespace {

class ConsoleTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { (void)remove_tree(folder_); }
  std::string current() { return *read_file(folder_ + "/console.log"); }
  std::string previous() { return *read_file(folder_ + "/console.1.log"); }
  std::string folder_ = testing::TempDir() + "console_XXXXXX";
};

TEST_F(ConsoleTest, KeepsTwoFilesAndCountsWhatItDropped) {
  auto log = ConsoleLog::open(folder_, 10);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->append("0123456789abcdefghijKLMNO"));
  EXPECT_EQ(current(), "KLMNO");
  EXPECT_EQ(previous(), "abcdefghij");
  EXPECT_EQ(log->lost_bytes(), 10U);
}

TEST_F(ConsoleTest, NeverHoldsMoreThanTwiceItsLimit) {
  auto log = ConsoleLog::open(folder_, 1000);
  ASSERT_TRUE(log);
  uint64_t written = 0;
  for (size_t size = 1; size < 700; size += 13) {
    ASSERT_TRUE(log->append(std::string(size, 'x')));
    written += size;
    const uint64_t held =
        current().size() + (log->lost_bytes() + 1000 <= written ? previous().size() : 0);
    EXPECT_LE(held, 2000U);
  }
  EXPECT_EQ(current().size() + previous().size() + log->lost_bytes(), written);
}

TEST_F(ConsoleTest, ContinuesAnExistingFileAndKeepsTheTail) {
  ASSERT_TRUE(ConsoleLog::open(folder_, 100)->append("first "));
  auto log = ConsoleLog::open(folder_, 100);
  ASSERT_TRUE(log->append("second"));
  EXPECT_EQ(current(), "first second");
  EXPECT_EQ(log->tail(), "second");
  ASSERT_TRUE(log->append(std::string(10000, 'z')));
  EXPECT_EQ(log->tail(), std::string(4096, 'z'));
}

}  // namespace
}  // namespace sandbox
