#include "machine/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "machine/shape.h"

namespace sandbox {
namespace {

class DiskTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { (void)remove_tree(folder_); }
  [[nodiscard]] std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string folder_ = testing::TempDir() + "disk_XXXXXX";
};

TEST(Qcow2, HeaderSaysWhatTheSpecificationAsksFor) {
  const Bytes image = empty_qcow2(kDiskBytes);
  ASSERT_EQ(image.size(), 4U * 65536);
  ByteReader in(image);
  EXPECT_EQ(in.be32(), 0x514649fbU);
  EXPECT_EQ(in.be32(), 3U);
  EXPECT_EQ(in.be64(), 0U) << "no backing file by name";
  EXPECT_EQ(in.be32(), 0U);
  EXPECT_EQ(in.be32(), 16U);
  EXPECT_EQ(in.be64(), kDiskBytes);
  EXPECT_EQ(in.be32(), 0U);
  EXPECT_EQ(in.be32(), 128U) << "64 GiB in tables of 512 MiB";
}

TEST(Qcow2, FirstLevelTableGrowsWithTheDisk) {
  for (const auto& [bytes, entries] :
       std::vector<std::pair<uint64_t, uint32_t>>{{512, 1},
                                                  {uint64_t{512} << 20, 1},
                                                  {(uint64_t{512} << 20) + 512, 2},
                                                  {uint64_t{4} << 40, 8192}}) {
    const Bytes header = empty_qcow2(bytes);
    ByteReader in(header);
    in.skip(36);
    EXPECT_EQ(in.be32(), entries) << bytes;
  }
}

TEST_F(DiskTest, AnOverlayIsPrivateSmallAndNeverOverwritten) {
  const auto disk = create_overlay(path("a.qcow2"));
  ASSERT_TRUE(disk) << disk.error().message;
  struct stat st {};
  ASSERT_EQ(::fstat(disk->get(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600U);
  EXPECT_LE(st.st_blocks * 512, 64 << 10);
  const auto again = create_overlay(path("a.qcow2"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kExists);
}

TEST_F(DiskTest, AnOverlayOnDiskHasTheBytesOfEmptyQcow2) {
  ASSERT_TRUE(create_overlay(path("a.qcow2")));
  const auto text = read_file(path("a.qcow2"));
  ASSERT_TRUE(text);
  const Bytes wanted = empty_qcow2(kDiskBytes);
  EXPECT_TRUE(*text == as_text(wanted));
}

TEST_F(DiskTest, QemuImgFindsNoError) {
  if (!find_in_path("qemu-img")) GTEST_SKIP() << "qemu-img (qemu-utils) is not installed";
  ASSERT_TRUE(create_overlay(path("a.qcow2")));
  const auto check = run_program({"qemu-img", "check", path("a.qcow2")});
  ASSERT_TRUE(check);
  EXPECT_EQ(check->exit_code, 0) << check->out << check->err;
  const auto info = run_program({"qemu-img", "info", path("a.qcow2")});
  ASSERT_TRUE(info);
  EXPECT_NE(info->out.find("64 GiB"), std::string::npos) << info->out;
  // The control: one wrong reference count is found.
  const Fd fd(open_file(path("a.qcow2"), O_WRONLY)->release());
  ASSERT_EQ(::pwrite(fd.get(), "\0\0", 2, 2 * 65536), 2);
  const auto bad = run_program({"qemu-img", "check", path("a.qcow2")});
  ASSERT_TRUE(bad);
  EXPECT_NE(bad->exit_code, 0);
}

TEST_F(DiskTest, ABaseOfAnotherSizeIsRefused) {
  ASSERT_TRUE(write_file_atomic(path("small"), "x"));
  const auto small = open_base(path("small"));
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Code::kInvalid);
  ASSERT_EQ(::truncate(path("small").c_str(), static_cast<off_t>(kDiskBytes)), 0);
  EXPECT_TRUE(open_base(path("small")));
}

TEST_F(DiskTest, AnImpossibleSpaceDemandIsAnErrorWithAHint) {
  EXPECT_TRUE(require_free_space(folder_, 1, "a disk"));
  const auto status = require_free_space(folder_, uint64_t{1} << 60, "a disk");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
  EXPECT_FALSE(status.error().hint.empty());
}

}  // namespace
}  // namespace sandbox
