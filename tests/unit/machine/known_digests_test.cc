#include "machine/known_digests.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace sandbox {
namespace {

constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class KnownDigestsTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { (void)remove_tree(folder_); }
  [[nodiscard]] std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string folder_ = testing::TempDir() + "digests_XXXXXX";
};

TEST(Sha256, MatchesTheStandardsExamples) {
  EXPECT_EQ(sha256_hex({}), kEmpty);
  EXPECT_EQ(sha256_hex(as_bytes("abc")), kAbc);
}

TEST_F(KnownDigestsTest, TheSparseDigestIsOfTheContentAndNotOfTheHoles) {
  const auto make = [&](const char* name, bool with_hole, char byte, off_t size) {
    const auto fd = open_file(path(name), O_RDWR | O_CREAT);
    EXPECT_EQ(::ftruncate(fd->get(), size), 0);
    const std::string zeros(1 << 20, '\0');
    if (!with_hole) {
      EXPECT_EQ(::pwrite(fd->get(), zeros.data(), zeros.size(), 1 << 20), 1 << 20);
    }
    EXPECT_EQ(::pwrite(fd->get(), &byte, 1, (5 << 20) + 17), 1);
    return *sparse_sha256_of_file(fd->get());
  };
  const std::string one = make("a", true, 'x', 8 << 20);
  EXPECT_EQ(one, make("b", false, 'x', 8 << 20));
  EXPECT_NE(one, make("c", true, 'y', 8 << 20));
  EXPECT_NE(one, make("d", true, 'x', 9 << 20)) << "the size counts";
}

TEST_F(KnownDigestsTest, WhatWasLearntIsTrustedUntilTheFileChanges) {
  ASSERT_TRUE(write_file_atomic(path("f"), "abc"));
  const auto fd = open_file(path("f"), O_RDWR);
  ASSERT_TRUE(fd);
  KnownDigests known = KnownDigests::load(path("memory"));
  ASSERT_TRUE(known.learn_sparse(fd->get(), path("f"), std::string(64, 'a')));
  EXPECT_EQ(*known.of_sparse(fd->get(), path("f")), std::string(64, 'a'));
  ASSERT_EQ(::pwrite(fd->get(), "abcd", 4, 0), 4);
  EXPECT_EQ(*known.of_sparse(fd->get(), path("f")), *sparse_sha256_of_file(fd->get()));
}

TEST_F(KnownDigestsTest, AFileJustWrittenIsHashedAndNotRemembered) {
  ASSERT_TRUE(write_file_atomic(path("f"), "abc"));
  KnownDigests known = KnownDigests::load(path("memory"));
  EXPECT_EQ(*known.of(path("f")), kAbc);
  ASSERT_TRUE(known.save());
  EXPECT_NE(::access(path("memory").c_str(), F_OK), 0);
}

// A system file has not changed for longer than two seconds. That it is remembered shows by
// planting another digest.
TEST_F(KnownDigestsTest, AnUnchangedFileIsNotReadAgainAndAChangedOneIs) {
  const std::string file = "/bin/sh";
  KnownDigests known = KnownDigests::load(path("memory"));
  const auto real = known.of(file);
  ASSERT_TRUE(real);
  ASSERT_TRUE(known.save());
  auto text = read_file(path("memory"));
  ASSERT_TRUE(text) << "/bin/sh changed less than two seconds ago?";
  const size_t at = text->find(*real);
  ASSERT_NE(at, std::string::npos);
  text->replace(at, 64, std::string(64, 'a'));
  ASSERT_TRUE(write_file_atomic(path("memory"), *text));
  EXPECT_EQ(*KnownDigests::load(path("memory")).of(file), std::string(64, 'a'));
  (*text)[0] = (*text)[0] == '9' ? '1' : '9';  // another device number: not the same file any more
  ASSERT_TRUE(write_file_atomic(path("memory"), *text));
  EXPECT_EQ(*KnownDigests::load(path("memory")).of(file), *real);
}

TEST_F(KnownDigestsTest, AGarbledMemoryIsAnEmptyOne) {
  ASSERT_TRUE(write_file_atomic(path("memory"), "x\n\n1 2\n1 zz /f\n"));
  ASSERT_TRUE(write_file_atomic(path("f"), "abc"));
  EXPECT_EQ(*KnownDigests::load(path("memory")).of(path("f")), kAbc);
}

TEST_F(KnownDigestsTest, AMissingFileIsAnErrorThatNamesIt) {
  const auto digest = KnownDigests::load(path("memory")).of(path("absent"));
  ASSERT_FALSE(digest);
  EXPECT_NE(digest.error().message.find("absent"), std::string::npos);
}

}  // namespace
}  // namespace sandbox
