#include "machine/ram.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace sandbox {
namespace {

constexpr uint64_t kSize = 64U << 20;

uint64_t held(const Fd& fd) {
  struct stat st {};
  EXPECT_EQ(::fstat(fd.get(), &st), 0);
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

void put(const Fd& fd, const std::string& bytes, off_t at) {
  ASSERT_EQ(::pwrite(fd.get(), bytes.data(), bytes.size(), at), static_cast<ssize_t>(bytes.size()));
}

std::string get(const Fd& fd, size_t size, off_t at) {
  std::string out(size, '?');
  EXPECT_EQ(::pread(fd.get(), out.data(), size, at), static_cast<ssize_t>(size));
  return out;
}

TEST(GuestMemory, CanNeitherShrinkNorGrow) {
  const auto memory = new_guest_memory(kSize);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_EQ(held(*memory), 0U);
  EXPECT_LT(::ftruncate(memory->get(), kSize / 2), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_LT(::ftruncate(memory->get(), kSize * 2), 0);
  EXPECT_EQ(::ftruncate(memory->get(), kSize), 0) << "the control: its own size is fine";
  EXPECT_EQ(::fallocate(memory->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0)
      << "the balloon must be able to give pages back";
}

TEST(CopySparse, CopiesDataAndKeepsHoles) {
  const auto from = new_guest_memory(kSize);
  const auto to = new_guest_memory(kSize);
  ASSERT_TRUE(from && to);
  put(*from, "first", 0);
  put(*from, std::string(3 << 20, 'm'), (20 << 20) + 4096);
  put(*from, "last", static_cast<off_t>(kSize) - 4);
  ASSERT_TRUE(copy_sparse(from->get(), to->get(), kSize, false));
  EXPECT_EQ(get(*to, 5, 0), "first");
  EXPECT_EQ(get(*to, 3 << 20, (20 << 20) + 4096), std::string(3 << 20, 'm'));
  EXPECT_EQ(get(*to, 4, static_cast<off_t>(kSize) - 4), "last");
  EXPECT_EQ(held(*to), held(*from));
}

TEST(CopySparse, DropsPagesOfZerosWhenAsked) {
  const auto from = new_guest_memory(kSize);
  const auto to = new_guest_memory(kSize);
  ASSERT_TRUE(from && to);
  put(*from, std::string(1 << 20, '\0'), 0);
  put(*from, "x", 8192);
  ASSERT_TRUE(copy_sparse(from->get(), to->get(), kSize, true));
  EXPECT_EQ(held(*to), 4096U);
  EXPECT_EQ(get(*to, 1, 8192), "x");
}

}  // namespace
}  // namespace sandbox
