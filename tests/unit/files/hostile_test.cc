// What a guest kernel that is an attacker sends, and that nothing comes of it: W3 and the read-only
// half of W2.

#include <sys/stat.h>

#include <fstream>

#include "base/file.h"
#include "unit/files/fuse_client.h"

namespace sandbox::files {
namespace {

namespace fs = std::filesystem;

class HostileTest : public ::testing::Test {
 protected:
  HostileTest() {
    ::umask(0);
    host_ = temp_.path() / "share";
    fs::create_directories(host_ / "d");
    std::ofstream(host_ / "f") << "content";
    std::ofstream(host_ / "d/inner") << "inner";
    fs::create_directories(temp_.path() / "outside");
    std::ofstream(temp_.path() / "outside/inner") << "secret";
  }
  void SetUp() override {
    client_ = std::make_unique<FuseClient>(host_.string(), options());
    client_->init();
    node_ = client_->node("f");
    directory_ = client_->node("d");
  }
  virtual TreeOptions options() { return {}; }
  // Everything on the host, share and neighbours: names, contents, modes.
  [[nodiscard]] std::string picture() const {
    std::vector<std::string> lines;
    for (const auto& entry : fs::recursive_directory_iterator(temp_.path())) {
      struct stat st {};
      ::lstat(entry.path().c_str(), &st);
      lines.push_back(
          fmt::format("{} {:o} {} {} {}", entry.path().string(), st.st_mode, st.st_nlink,
                      S_ISREG(st.st_mode) ? read_file(entry.path().string()).value_or("?") : "",
                      st.st_mtim.tv_nsec));
    }
    std::sort(lines.begin(), lines.end());
    return fmt::format("{}", fmt::join(lines, "\n"));
  }

  TempTree temp_;
  fs::path host_;
  std::unique_ptr<FuseClient> client_;
  uint64_t node_ = 0;
  uint64_t directory_ = 0;
};

// tmpfs, as btrfs, keeps any number of seconds. What the sanitized build finds here is arithmetic.
TEST(HostileTimes, SecondsOfAnyNumberAreKeptAndTold) {
  if (!fs::exists("/dev/shm")) GTEST_SKIP() << "no tmpfs here";
  const TempTree temp("/dev/shm");
  std::ofstream(temp.path() / "f") << "content";
  FuseClient client(temp.path().string(), {});
  client.init();
  const uint64_t node = client.node("f");
  for (const int64_t seconds : {INT64_MAX, INT64_MIN, int64_t{1} << 62}) {
    fuse_setattr_in in{};
    in.valid = FATTR_MTIME;
    in.mtime = static_cast<uint64_t>(seconds);
    ASSERT_EQ(client.set_attributes(node, in).error, 0);
    const auto told = client.set_mode(node, 0600).as<fuse_attr_out>();
    EXPECT_EQ(static_cast<int64_t>(told.attr.mtime), seconds);
  }
}

// ---- framing

TEST_F(HostileTest, ARequestThatDoesNotFitItsHeaderIsAViolation) {
  const Bytes whole = FuseClient::request(FUSE_LOOKUP, 1, name_bytes("f"));
  for (size_t size = 0; size < whole.size(); ++size) {
    Bytes out;
    EXPECT_FALSE(client_->server().handle(ByteView(whole).first(size), out).has_value()) << size;
    EXPECT_TRUE(out.empty());
  }
  Bytes longer = whole;
  longer.push_back(0);
  Bytes out;
  EXPECT_FALSE(client_->server().handle(longer, out).has_value());
  EXPECT_FALSE(client_->server()
                   .handle(FuseClient::request(FUSE_LOOKUP, 1, name_bytes("f"), 0), out)
                   .has_value());
}

TEST_F(HostileTest, AnEmptyOrShortBodyIsInvalidForEveryOperationThatNeedsOne) {
  const std::string before = picture();
  for (uint32_t opcode = 0; opcode < 70; ++opcode) {
    if (opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT ||
        opcode == FUSE_NOTIFY_REPLY || opcode == FUSE_READLINK || opcode == FUSE_STATFS ||
        opcode == FUSE_DESTROY)
      continue;
    for (const size_t size : {0UL, 1UL, 3UL, 7UL}) {
      const int error = client_->call(opcode, kRootNode, Bytes(size, 0xFF)).error;
      EXPECT_TRUE(error == EINVAL || error == ENOSYS) << opcode << " " << size << " " << error;
    }
  }
  client_->tell(FUSE_FORGET, node_, Bytes(3));
  client_->tell(FUSE_BATCH_FORGET, 0, Bytes(3));
  EXPECT_EQ(picture(), before);
}

TEST_F(HostileTest, UnknownOperationsAreNotImplemented) {
  for (const uint32_t opcode : {0U, 7U, 19U, 52U, 53U, 100U, 4096U, 1U << 20, 0xFFFFFFFFU})
    EXPECT_EQ(client_->call(opcode, kRootNode, Bytes(64)).error, ENOSYS) << opcode;
}

TEST_F(HostileTest, ABatchThatClaimsMoreThanItHasEndsWithItsBytes) {
  client_->tell(
      FUSE_BATCH_FORGET, 0,
      bytes_of(fuse_batch_forget_in{0xFFFFFFFF, 0}) + bytes_of(fuse_forget_one{node_, 99}));
  EXPECT_EQ(client_->get_attributes(node_).error, ESTALE);
}

// ---- names

TEST_F(HostileTest, ANameThatIsAPathIsRefusedByEveryOperation) {
  const std::string before = picture();
  using namespace std::string_literals;
  const std::string names[] = {"",
                               ".",
                               "..",
                               "/",
                               "../outside",
                               "d/inner",
                               "/etc/passwd",
                               "d/",
                               "./f",
                               "../outside/inner",
                               "a\0b"s,
                               "..\0"s,
                               "//",
                               "/proc/self/mem"};
  for (const std::string& name : names) {
    const Bytes raw = text_bytes(name) + Bytes(1);
    EXPECT_EQ(client_->call(FUSE_LOOKUP, kRootNode, raw).error, EINVAL) << name;
    EXPECT_EQ(client_->call(FUSE_UNLINK, kRootNode, raw).error, EINVAL) << name;
    EXPECT_EQ(client_->call(FUSE_RMDIR, kRootNode, raw).error, EINVAL) << name;
    EXPECT_EQ(client_->make_directory(kRootNode, name).error, EINVAL) << name;
    EXPECT_EQ(client_->make_node(kRootNode, name, S_IFREG | 0600).error, EINVAL) << name;
    EXPECT_EQ(client_->make_symlink(kRootNode, name, "x").error, EINVAL) << name;
    EXPECT_EQ(client_->make_link(node_, kRootNode, name).error, EINVAL) << name;
    EXPECT_EQ(client_->create(kRootNode, name, O_RDWR, 0600).error, EINVAL) << name;
    EXPECT_EQ(client_->rename(kRootNode, name, kRootNode, "x").error, EINVAL) << name;
    EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, name).error, EINVAL) << name;
  }
  EXPECT_EQ(picture(), before);
}

TEST_F(HostileTest, NamesAreBoundedAndEnd) {
  EXPECT_EQ(client_->look_up(kRootNode, std::string(256, 'a')).error, ENAMETOOLONG);
  EXPECT_EQ(client_->look_up(kRootNode, std::string(100000, 'a')).error, ENAMETOOLONG);
  EXPECT_EQ(client_->look_up(kRootNode, std::string(255, 'a')).error, ENOENT);
  EXPECT_EQ(client_->call(FUSE_LOOKUP, kRootNode, text_bytes("f")).error, EINVAL);
  EXPECT_EQ(client_->call(FUSE_LOOKUP, kRootNode, name_bytes("f") + name_bytes("g")).error, EINVAL);
  EXPECT_EQ(client_->call(FUSE_SYMLINK, kRootNode, name_bytes("one")).error, EINVAL);
  EXPECT_EQ(client_->make_symlink(kRootNode, "empty", "").error, EINVAL);
  EXPECT_NE(client_->make_symlink(kRootNode, "long", std::string(5000, 'x')).error, 0);
}

TEST_F(HostileTest, BadNamesAreReportedPrintably) {
  std::vector<std::string> seen;
  client_->server().on_refusal([&](std::string_view operation, std::string_view detail) {
    seen.push_back(std::string(operation) + ": " + std::string(detail));
  });
  client_->look_up(kRootNode, "../\x1b[31m");
  client_->look_up(kRootNode, "absent");
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0], "lookup: the name '../\\x1b[31m'");
}

// ---- nodes and handles

TEST_F(HostileTest, NodesThatWereNeverGivenAreStale) {
  for (const uint64_t node : {0UL, 999UL, 1UL << 63, UINT64_MAX}) {
    EXPECT_EQ(client_->get_attributes(node).error, ESTALE);
    EXPECT_EQ(client_->look_up(node, "f").error, ESTALE);
    EXPECT_EQ(client_->open(node, O_RDONLY).error, ESTALE);
    EXPECT_EQ(client_->call(FUSE_OPENDIR, node, FuseClient::open_body(0)).error, ESTALE);
    EXPECT_EQ(client_->call(FUSE_READLINK, node).error, ESTALE);
    EXPECT_EQ(client_->set_mode(node, 0777).error, ESTALE);
    EXPECT_EQ(client_->make_link(node, kRootNode, "l").error, ESTALE);
    EXPECT_EQ(client_->rename(kRootNode, "f", node, "x").error, ESTALE);
    EXPECT_EQ(client_->create(node, "x", O_RDWR, 0600).error, ESTALE);
    client_->forget(node, UINT64_MAX);
  }
}

TEST_F(HostileTest, TheRootIsNeverForgotten) {
  client_->forget(kRootNode, UINT64_MAX);
  EXPECT_EQ(client_->get_attributes(kRootNode).error, 0);
}

TEST_F(HostileTest, HandlesBelongToTheirNodeAndKind) {
  const uint64_t handle = FuseClient::handle_of(client_->open(node_, O_RDWR));
  const uint64_t listing =
      FuseClient::handle_of(client_->call(FUSE_OPENDIR, kRootNode, FuseClient::open_body(0)));
  EXPECT_EQ(client_->read(directory_, handle, 0, 1).error, EBADF);
  EXPECT_EQ(client_->write(kRootNode, handle, 0, "x").error, EBADF);
  EXPECT_EQ(client_->read(kRootNode, listing, 0, 1).error, EBADF);
  EXPECT_EQ(client_->call(FUSE_READDIR, node_, FuseClient::read_body(handle, 0, 4096)).error,
            EBADF);
  EXPECT_EQ(client_->call(FUSE_READDIR, directory_, FuseClient::read_body(listing, 0, 4096)).error,
            EBADF);
  for (const uint64_t unknown : {0UL, handle + 100, UINT64_MAX}) {
    EXPECT_EQ(client_->read(node_, unknown, 0, 1).error, EBADF);
    EXPECT_EQ(client_->write(node_, unknown, 0, "x").error, EBADF);
    EXPECT_EQ(client_->release(node_, unknown).error, 0);
    fuse_setattr_in in{};
    in.valid = FATTR_SIZE | FATTR_FH;
    in.fh = unknown;
    EXPECT_EQ(client_->set_attributes(node_, in).error, EBADF);
  }
}

TEST_F(HostileTest, ForgettingAnOpenFileLeavesNothingBehind) {
  const uint64_t handle = FuseClient::handle_of(client_->open(node_, O_RDONLY));
  client_->forget(node_, 100);
  client_->release(node_, handle);
  EXPECT_EQ(client_->tree().open_handles(), 0U);
  EXPECT_EQ(client_->open(client_->node("f"), O_RDONLY).error, 0);
}

TEST_F(HostileTest, OffsetsAndSizesBeyondAllBoundsAreErrors) {
  const uint64_t handle = FuseClient::handle_of(client_->open(node_, O_RDWR));
  for (const uint64_t offset :
       {uint64_t{INT64_MAX}, uint64_t{INT64_MAX} + 1, UINT64_MAX - 3, UINT64_MAX}) {
    EXPECT_NE(client_->read(node_, handle, offset, 100).error, 0) << offset;
    EXPECT_NE(client_->write(node_, handle, offset, "xyz").error, 0) << offset;
    EXPECT_NE(client_->set_size(node_, offset).error, 0) << offset;
    fuse_fallocate_in allocate{};
    allocate.fh = handle;
    allocate.offset = offset;
    allocate.length = UINT64_MAX;
    EXPECT_NE(client_->call(FUSE_FALLOCATE, node_, bytes_of(allocate)).error, 0);
    fuse_lseek_in seek{handle, offset, SEEK_DATA, 0};
    EXPECT_NE(client_->call(FUSE_LSEEK, node_, bytes_of(seek)).error, 0);
    fuse_copy_file_range_in copy{};
    copy.fh_in = copy.fh_out = handle;
    copy.nodeid_out = node_;
    copy.off_in = copy.off_out = offset;
    copy.len = UINT64_MAX;
    EXPECT_NE(client_->call(FUSE_COPY_FILE_RANGE, node_, bytes_of(copy)).error, 0);
    const uint64_t listing =
        FuseClient::handle_of(client_->call(FUSE_OPENDIR, kRootNode, FuseClient::open_body(0)));
    (void)client_->call(FUSE_READDIR, kRootNode, FuseClient::read_body(listing, offset, 4096));
  }
  EXPECT_EQ(client_->read(node_, handle, 0, 0xFFFFFFFF).text(), "content");
}

TEST_F(HostileTest, AWriteIsAsLongAsWhatArrived) {
  const uint64_t handle = FuseClient::handle_of(client_->open(node_, O_RDWR));
  Bytes body = FuseClient::write_body(handle, 0, text_bytes("abc"));
  for (const uint32_t claimed : {0U, 2U, 4U, 1U << 20, 0xFFFFFFFFU}) {
    std::memcpy(body.data() + offsetof(fuse_write_in, size), &claimed, sizeof claimed);
    EXPECT_EQ(client_->call(FUSE_WRITE, node_, body).error, EINVAL) << claimed;
  }
  EXPECT_EQ(client_->read(node_, handle, 0, 100).text(), "content");
}

TEST_F(HostileTest, TimesOutOfRangeAreInvalid) {
  fuse_setattr_in in{};
  in.valid = FATTR_MTIME;
  for (const uint32_t nanoseconds : {1'000'000'000U, 0x3FFFFFFFU, 0x3FFFFFFEU, 0xFFFFFFFFU}) {
    in.mtimensec = nanoseconds;
    EXPECT_EQ(client_->set_attributes(node_, in).error, EINVAL);
  }
  in.mtimensec = 0;
  in.mtime = UINT64_MAX;
  (void)client_->set_attributes(node_, in);
  in.mtime = 1ULL << 63;
  (void)client_->set_attributes(node_, in);
}

// ---- what must not be opened or made

TEST_F(HostileTest, OnlyRegularFilesAndDirectoriesAreOpened) {
  ::mkfifo((host_ / "fifo").c_str(), 0600);
  fs::create_symlink("f", host_ / "link");
  EXPECT_EQ(client_->open(client_->node("fifo"), O_RDONLY).error, EACCES);
  EXPECT_EQ(client_->open(client_->node("fifo"), O_WRONLY).error, EACCES);
  EXPECT_EQ(client_->create(kRootNode, "fifo", O_RDWR, 0600).error, EACCES);
  EXPECT_EQ(client_->open(client_->node("link"), O_RDONLY).error, ELOOP);
  EXPECT_EQ(client_->open(directory_, O_RDONLY).error, EISDIR);
  EXPECT_EQ(client_->call(FUSE_OPENDIR, node_, FuseClient::open_body(0)).error, ENOTDIR);
  EXPECT_EQ(client_->look_up(client_->node("link"), "x").error, ENOTDIR);
}

TEST_F(HostileTest, DevicesAreNotMade) {
  for (const uint32_t type : {S_IFCHR, S_IFBLK, S_IFDIR, S_IFLNK, 0xF000})
    EXPECT_EQ(
        client_->make_node(kRootNode, "dev", static_cast<uint32_t>(type) | 0666U, 0x103).error,
        EPERM);
  EXPECT_FALSE(fs::exists(host_ / "dev"));
  EXPECT_EQ(client_->create(kRootNode, "c", O_RDWR, S_IFCHR | 0600).error, 0);
  EXPECT_TRUE(fs::is_regular_file(host_ / "c"));
}

TEST_F(HostileTest, AMountBeneathTheShareIsNotEntered) {
  // /proc has mounts nowhere a test could make one without rights, so the share is the root's /dev
  // and the mount its pts.
  if (!fs::exists("/dev/pts/ptmx")) GTEST_SKIP() << "no /dev/pts here";
  FuseClient devices("/dev", {});
  devices.init();
  EXPECT_EQ(devices.look_up(kRootNode, "pts").error, EACCES);
}

// ---- races: what was a directory when it was looked up is something else when it is used

TEST_F(HostileTest, ADirectoryReplacedByASymlinkIsNotFollowed) {
  TreeOptions few;
  few.cached_fds = 1;
  FuseClient client(host_.string(), few);
  client.init();
  fs::create_directory(host_ / "e");
  const uint64_t d = client.node("d");
  const uint64_t inner = client.node("d/inner");
  client.list(client.node("e"), true);  // takes the one cached descriptor
  fs::remove_all(host_ / "d");
  fs::create_directory_symlink(temp_.path() / "outside", host_ / "d");
  EXPECT_EQ(client.open(inner, O_RDONLY).error, ESTALE);
  EXPECT_EQ(client.get_attributes(inner).error, ESTALE);
  EXPECT_EQ(client.look_up(d, "inner").error, ESTALE);
  EXPECT_EQ(client.create(d, "new", O_RDWR, 0600).error, ESTALE);
  EXPECT_FALSE(fs::exists(temp_.path() / "outside/new"));
}

TEST_F(HostileTest, AFileReplacedByASymlinkOrAHardLinkIsNotOpenedInItsPlace) {
  fs::remove(host_ / "f");
  fs::create_symlink(temp_.path() / "outside/inner", host_ / "f");
  EXPECT_EQ(client_->open(node_, O_RDONLY).error, ESTALE);
  EXPECT_EQ(client_->set_size(node_, 0).error, ESTALE);
  fs::remove(host_ / "f");
  fs::create_hard_link(temp_.path() / "outside/inner", host_ / "f");
  EXPECT_EQ(client_->open(node_, O_RDWR).error, ESTALE);
  EXPECT_EQ(*read_file((temp_.path() / "outside/inner").string()), "secret");
}

TEST_F(HostileTest, AnAncestorReplacedByASymlinkIsNotFollowed) {
  fs::create_directories(host_ / "a/b/c");
  std::ofstream(host_ / "a/b/c/file") << "x";
  fs::create_directories(temp_.path() / "outside/b/c");
  std::ofstream(temp_.path() / "outside/b/c/file") << "secret";
  TreeOptions few;
  few.cached_fds = 1;
  FuseClient client(host_.string(), few);
  client.init();
  const uint64_t file = client.node("a/b/c/file");
  client.list(client.node("d"), true);
  fs::rename(host_ / "a", host_ / "z");
  fs::create_directory_symlink(temp_.path() / "outside", host_ / "a");
  EXPECT_EQ(client.open(file, O_RDONLY).error, ESTALE);
}

TEST_F(HostileTest, StaleNamesInACircleEnd) {
  // The host turns x/y around while the guest's table still has the one inside the other.
  fs::create_directories(host_ / "x/y");
  TreeOptions few;
  few.cached_fds = 1;
  FuseClient client(host_.string(), few);
  client.init();
  const uint64_t x = client.node("x");
  const uint64_t y = client.node("x/y");
  const uint64_t in_y =
      FuseClient::handle_of(client.call(FUSE_OPENDIR, y, FuseClient::open_body(0)));
  fs::rename(host_ / "x/y", host_ / "y");
  fs::rename(host_ / "x", host_ / "y/x");
  EXPECT_EQ(client.look_up(y, "x").as<fuse_entry_out>().nodeid, x);
  fuse_release_in in{};
  in.fh = in_y;
  client.call(FUSE_RELEASEDIR, y, bytes_of(in));
  client.list(client.node("d"), true);
  EXPECT_EQ(client.look_up(x, "n").error, ESTALE);
}

// ---- a read-only share

class ReadOnlyTest : public HostileTest {
 protected:
  TreeOptions options() override {
    TreeOptions out;
    out.read_only = true;
    return out;
  }
};

TEST_F(ReadOnlyTest, NothingChangesWhateverIsAsked) {
  const std::string before = picture();
  for (const uint32_t flags : {O_WRONLY, O_RDWR, O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC,
                               O_RDWR | O_APPEND, O_ACCMODE, O_RDONLY | O_CREAT})
    EXPECT_EQ(client_->open(node_, flags).error, EROFS) << flags;
  const uint64_t handle = FuseClient::handle_of(client_->open(node_, O_RDONLY));
  EXPECT_EQ(client_->read(node_, handle, 0, 9).text(), "content");
  EXPECT_EQ(client_->write(node_, handle, 0, "x").error, EROFS);
  EXPECT_EQ(client_->write(node_, handle, 0, "x", FUSE_WRITE_CACHE).error, EROFS);
  EXPECT_EQ(client_->create(kRootNode, "n", O_RDWR, 0600).error, EROFS);
  EXPECT_EQ(client_->create(kRootNode, "f", O_RDONLY, 0600).error, EROFS);
  EXPECT_EQ(client_->make_directory(kRootNode, "n").error, EROFS);
  EXPECT_EQ(client_->make_node(kRootNode, "n", S_IFREG | 0600).error, EROFS);
  EXPECT_EQ(client_->make_symlink(kRootNode, "n", "f").error, EROFS);
  EXPECT_EQ(client_->make_link(node_, kRootNode, "n").error, EROFS);
  EXPECT_EQ(client_->call(FUSE_UNLINK, kRootNode, name_bytes("f")).error, EROFS);
  EXPECT_EQ(client_->call(FUSE_RMDIR, kRootNode, name_bytes("d")).error, EROFS);
  EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, "g").error, EROFS);
  EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, "d", RENAME_EXCHANGE).error, EROFS);
  for (const uint32_t valid :
       {FATTR_MODE, FATTR_UID, FATTR_GID, FATTR_SIZE, FATTR_SIZE | FATTR_FH, FATTR_ATIME,
        FATTR_MTIME, FATTR_MTIME | FATTR_MTIME_NOW, FATTR_CTIME, 0}) {
    fuse_setattr_in in{};
    in.valid = valid;
    in.fh = handle;
    EXPECT_EQ(client_->set_attributes(node_, in).error, EROFS) << valid;
  }
  fuse_fallocate_in allocate{};
  allocate.fh = handle;
  allocate.length = 100;
  EXPECT_EQ(client_->call(FUSE_FALLOCATE, node_, bytes_of(allocate)).error, EROFS);
  fuse_copy_file_range_in copy{};
  copy.fh_in = copy.fh_out = handle;
  copy.nodeid_out = node_;
  copy.len = 1;
  EXPECT_EQ(client_->call(FUSE_COPY_FILE_RANGE, node_, bytes_of(copy)).error, EROFS);
  EXPECT_EQ(client_->call(FUSE_SETXATTR, node_, Bytes(64)).error, EROFS);
  EXPECT_EQ(client_->call(FUSE_REMOVEXATTR, node_, name_bytes("user.x")).error, EROFS);
  EXPECT_NE(client_->call(FUSE_TMPFILE, kRootNode, Bytes(64)).error, 0);
  EXPECT_EQ(picture(), before);
}

}  // namespace
}  // namespace sandbox::files
