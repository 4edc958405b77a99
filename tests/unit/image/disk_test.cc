#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/process.h"
#include "image/disk_builder.h"
#include "image/disk_writer.h"
#include "image/image.h"
#include "unit/image/layer_fixture.h"
#include "unit/image/tar_builder.h"

namespace sandbox {
namespace {

namespace fs = std::filesystem;
using test::TarBuilder;
using testing::HasSubstr;

class Disk : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "sandbox-disk-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    job_.disk_path = folder_ + "/disk";
    job_.disk_bytes = kImageDiskBytes;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void add_layer(const std::string& tar, const std::string& blob) {
    auto fd = memory_file("layer", blob);
    ASSERT_TRUE(fd);
    job_.layers.push_back(
        {std::move(*fd), {Digest::of(as_bytes(blob)), blob.size(), ""}, Digest::of(as_bytes(tar))});
  }
  void add_layer(const std::string& tar) { add_layer(tar, test::gzip(tar)); }
  Status build() {
    NoProgress progress;
    return build_disk(job_, progress);
  }
  void expect_sound() {
    const auto out = run_program({"e2fsck", "-fn", job_.disk_path});
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ(out->exit_code, 0) << out->out << out->err;
  }
  std::string debugfs(const std::string& request) {
    const auto out = run_program({"debugfs", "-R", request, job_.disk_path}, 64U << 20);
    return out ? out->out : out.error().message;
  }
  void expect_nothing_left() { EXPECT_TRUE(fs::is_empty(folder_)); }

  std::string folder_;
  DiskJob job_;
};

TEST_F(Disk, HoldsEveryKindOfFileAndPassesTheCheck) {
  const std::string big = [] {
    std::string out;
    for (int i = 0; out.size() < (9U << 20); ++i) out += std::to_string(i * 7919) + "\n";
    return out;
  }();
  const std::string capability("\x01\0\0\x02\0 \0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  TarBuilder tar;
  tar.folder("./", 0755)
      .folder("etc", 0755)
      .file("etc/empty", "")
      .file("etc/small", "hello\n")
      .file("big", big);
  tar.symlink("short", "etc/small")
      .symlink("long", std::string(90, 'l'))
      .symlink("edge59", std::string(59, 'e'))
      .symlink("edge60", std::string(60, 'e'));
  tar.hardlink("etc/second", "etc/small");
  tar.add({.name = "null", .type = '3', .mode = 0666, .major = 1, .minor = 3});
  tar.add({.name = "nvme", .type = '4', .mode = 0660, .major = 259, .minor = 70000});
  tar.add({.name = "pipe", .type = '6', .mode = 0600});
  tar.add({.name = "suid",
           .content = "x",
           .mode = 04755,
           .uid = 100'000,
           .gid = 70'000,
           .mtime = 1'700'000'000});
  tar.add({.name = "ping",
           .content = "x",
           .mode = 0755,
           .pax = {{"SCHILY.xattr.security.capability", capability},
                   {"SCHILY.xattr.user.big", std::string(600, 'v')}}});
  tar.folder("tmp", 01777);
  for (int i = 0; i < 700; ++i)
    tar.file("many/a-rather-long-file-name-number-" + std::to_string(i), std::to_string(i));
  for (int i = 0; i < 300; ++i) tar.folder("dirs/" + std::to_string(i));
  add_layer(tar.finish());
  const Status status = build();
  ASSERT_TRUE(status) << status.error().message;
  expect_sound();
  EXPECT_EQ(debugfs("cat /etc/small"), "hello\n");
  EXPECT_EQ(debugfs("cat /etc/second"), "hello\n");
  EXPECT_EQ(debugfs("cat /many/a-rather-long-file-name-number-699"), "699");
  EXPECT_EQ(debugfs("cat /big"), big);
  EXPECT_THAT(debugfs("stat /etc/small"), HasSubstr("Links: 2"));
  EXPECT_THAT(debugfs("stat /short"), HasSubstr("Fast link dest: \"etc/small\""));
  EXPECT_THAT(debugfs("stat /edge59"), HasSubstr("Fast link dest: \"" + std::string(59, 'e')));
  EXPECT_EQ(debugfs("cat /long"), std::string(90, 'l'));
  EXPECT_EQ(debugfs("cat /edge60"), std::string(60, 'e'));
  EXPECT_THAT(debugfs("stat /null"), HasSubstr("Device major/minor number: 01:03"));
  EXPECT_THAT(debugfs("stat /nvme"), HasSubstr("Device major/minor number: 259:70000"));
  EXPECT_THAT(debugfs("stat /pipe"), HasSubstr("Type: FIFO"));
  EXPECT_THAT(debugfs("stat /suid"),
              testing::AllOf(HasSubstr("Mode:  04755"), HasSubstr("User: 100000"),
                             HasSubstr("Group: 70000")));
  EXPECT_THAT(debugfs("ea_get -x /ping security.capability"), HasSubstr("01 00 00 02 00 20"));
  EXPECT_THAT(debugfs("ea_get /ping user.big"), HasSubstr(std::string(600, 'v')));
  EXPECT_THAT(debugfs("stat /tmp"), HasSubstr("Mode:  01777"));
  EXPECT_THAT(debugfs("stat /dirs"), HasSubstr("Links: 302"));
}

TEST_F(Disk, IsSparsePrivateAndOfTheStandardSize) {
  add_layer(TarBuilder().file("x", "1").finish());
  ASSERT_TRUE(build());
  EXPECT_EQ(fs::file_size(job_.disk_path), kImageDiskBytes);
  EXPECT_LT(allocated_bytes(job_.disk_path), 4U << 20);
  EXPECT_EQ(fs::status(job_.disk_path).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(Disk, IsTheSameForTheSameImage) {
  // A small file system, since all of it is compared.
  job_.disk_bytes = 256U << 20;
  const std::string tar = TarBuilder().file("a/x", "1").symlink("b", "a").finish();
  add_layer(tar);
  ASSERT_TRUE(build());
  const auto first = read_file(job_.disk_path, 300U << 20);
  fs::remove(job_.disk_path);
  job_.layers.clear();
  add_layer(tar);
  ASSERT_TRUE(build());
  EXPECT_EQ(Digest::of(as_bytes(*first)),
            Digest::of(as_bytes(*read_file(job_.disk_path, 300U << 20))));
}

TEST_F(Disk, KeepsHolesAndLongExtentLists) {
  // One block of content in every second block: more extents than an inode holds.
  std::string map = "40\n";
  std::string content;
  for (int i = 0; i < 40; ++i) {
    map += std::to_string(i * 8192 + 4096) + "\n4096\n";
    content += std::string(4096, static_cast<char>('A' + i % 26));
  }
  map.resize((map.size() + 511) / 512 * 512, '\0');
  add_layer(TarBuilder()
                .add({.name = "GNUSparseFile.0/s",
                      .content = map + content,
                      .pax = {{"GNU.sparse.major", "1"},
                              {"GNU.sparse.minor", "0"},
                              {"GNU.sparse.name", "s"},
                              {"GNU.sparse.realsize", "10000000"}}})
                .file("after", "untouched")
                .finish());
  const Status status = build();
  ASSERT_TRUE(status) << status.error().message;
  expect_sound();
  const std::string back = debugfs("cat /s");
  ASSERT_EQ(back.size(), 10'000'000U);
  EXPECT_EQ(back.substr(0, 4096), std::string(4096, '\0'));
  EXPECT_EQ(back.substr(4096 + 8192 * 39, 4096),
            std::string(4096, static_cast<char>('A' + 39 % 26)));
  EXPECT_EQ(debugfs("cat /after"), "untouched");
}

TEST_F(Disk, FilesOfAnyLengthAroundABlockComeBack) {
  TarBuilder tar;
  const std::vector<size_t> sizes = {1,    511,   4095,  4096,           4097,
                                     8192, 65535, 65537, (4U << 20) - 1, (4U << 20) + 1};
  for (const size_t size : sizes) tar.file("f" + std::to_string(size), std::string(size, 'f'));
  add_layer(tar.finish());
  ASSERT_TRUE(build());
  expect_sound();
  for (const size_t size : sizes)
    EXPECT_EQ(debugfs("cat /f" + std::to_string(size)), std::string(size, 'f')) << size;
}

TEST_F(Disk, ReplacedContentTakesNoRoom) {
  add_layer(TarBuilder().file("x", std::string(20U << 20, 'x')).finish());
  add_layer(TarBuilder().file("x", "small").finish());
  ASSERT_TRUE(build());
  expect_sound();
  EXPECT_EQ(debugfs("cat /x"), "small");
  EXPECT_LT(allocated_bytes(job_.disk_path), 8U << 20);
}

// Large and hardly compressible: long queues between the threads, memory given back to the system,
// checks of free space.
TEST_F(Disk, ALargeLayerIsBuiltWithinTheConfinement) {
  std::string noise(100U << 20, '\0');
  uint64_t state = 88172645463325252ULL;  // xorshift64
  for (size_t i = 0; i + 8 <= noise.size(); i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(noise.data() + i, &state, 8);
  }
  const std::string tar = TarBuilder().file("noise", noise).finish();
  add_layer(tar, test::zstd(tar));
  add_layer(tar, tar);
  const Status status = build();
  ASSERT_TRUE(status) << status.error().message;
  expect_sound();
}

TEST_F(Disk, AFailedBuildLeavesNothing) {
  const std::string tar = TarBuilder().file("x", "1").finish();
  add_layer(tar);
  add_layer(TarBuilder().file("y", "2").file("../escape", "3").finish());
  const Status status = build();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalid);
  EXPECT_THAT(status.error().message, HasSubstr("layer 2 of 2"));
  expect_nothing_left();
}

TEST_F(Disk, AWrongDigestLeavesNothing) {
  const std::string tar = TarBuilder().file("x", "1").finish();
  add_layer(tar + "other", test::gzip(tar));
  const Status status = build();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kTampered);
  EXPECT_THAT(status.error().message, HasSubstr("layer 1 of 1"));
  expect_nothing_left();
}

TEST_F(Disk, AnImageLargerThanItsDiskLeavesNothing) {
  job_.disk_bytes = 128U << 20;
  add_layer(TarBuilder()
                .file("x", std::string(100U << 20, 'x'))
                .file("y", std::string(20U << 20, 'y'))
                .finish());
  const Status status = build();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
  expect_nothing_left();
}

TEST_F(Disk, ALayerThatClaimsMoreThanTheHostHasIsRefusedBeforeItIsRead) {
  add_layer(TarBuilder().file("x", "1").finish());
  job_.layers[0].descriptor.size = uint64_t{1} << 60;
  const Status status = build();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
  expect_nothing_left();
}

TEST_F(Disk, CancellingABuildLeavesNothing) {
  struct Cancelled final : Progress {
    void step(std::string_view) override {}
    void advance(uint64_t, uint64_t) override {}
    [[nodiscard]] bool cancelled() const override { return true; }
  } cancelled;
  add_layer(TarBuilder().file("x", "1").finish());
  const Status status = build_disk(job_, cancelled);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCancelled);
  expect_nothing_left();
}

}  // namespace
}  // namespace sandbox
