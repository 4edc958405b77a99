// Every operation of the FUSE server on real files, driven as a guest kernel would.

#include "files/server.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "base/file.h"
#include "unit/files/fuse_client.h"

namespace sandbox::files {
namespace {

namespace fs = std::filesystem;

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    ::umask(0);
    host_ = temp_.path() / "share";
    fs::create_directory(host_);
    put("f", "content");
    fs::create_directory(host_ / "d");
    put("d/inner", "inner");
  }
  void SetUp() override {
    client_ = std::make_unique<FuseClient>(host_.string(), options());
    EXPECT_EQ(client_->init().error, 0);
  }
  virtual TreeOptions options() { return {}; }
  void put(const fs::path& name, std::string_view content) const {
    std::ofstream(host_ / name, std::ios::binary) << content;
  }
  [[nodiscard]] std::string get(const fs::path& name) const {
    return read_file((host_ / name).string()).value_or("<absent>");
  }
  [[nodiscard]] mode_t mode(const fs::path& name) const {
    struct stat st {};
    EXPECT_EQ(::lstat((host_ / name).c_str(), &st), 0);
    return st.st_mode;
  }
  // A file created by the guest and open for both.
  struct Open {
    uint64_t node, handle;
  };
  Open create(std::string_view name, uint32_t flags = O_RDWR, uint32_t mode_bits = 0644) {
    const Reply reply = client_->create(kRootNode, name, flags, mode_bits);
    EXPECT_EQ(reply.error, 0);
    return {reply.as<fuse_entry_out>().nodeid, FuseClient::created_handle(reply)};
  }
  std::vector<Invalidation> changes() {
    std::vector<Invalidation> out;
    client_->tree().read_changes(out);
    return out;
  }

  TempTree temp_;
  fs::path host_;
  std::unique_ptr<FuseClient> client_;
};

// ---- INIT

TEST_F(ServerTest, InitAnswersOurVersionAndNoWriteback) {
  const auto out = client_->init().as<fuse_init_out>();
  EXPECT_EQ(out.major, 7U);
  EXPECT_EQ(out.minor, 38U);
  EXPECT_EQ(out.max_write, 1U << 20);
  EXPECT_EQ(out.max_pages, 256U);
  EXPECT_TRUE((out.flags & FUSE_AUTO_INVAL_DATA) != 0);
  EXPECT_EQ(
      out.flags & (FUSE_WRITEBACK_CACHE | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS | FUSE_POSIX_ACL),
      0U);
}

TEST_F(ServerTest, InitOffersNothingThatWasNotAskedFor) {
  EXPECT_EQ(client_->init(31, 0).as<fuse_init_out>().flags, 0U);
}

TEST_F(ServerTest, InitRefusesKernelsThatAreTooOld) {
  EXPECT_EQ(client_->init(30).error, EPROTO);
}

TEST_F(ServerTest, InitBeginsAnew) {
  const uint64_t node = client_->node("f");
  client_->init();
  EXPECT_EQ(client_->get_attributes(node).error, ESTALE);
  EXPECT_EQ(client_->tree().nodes(), 1U);
}

TEST_F(ServerTest, BeforeInitNothingIsAnswered) {
  FuseClient fresh(host_.string(), {});
  EXPECT_EQ(fresh.look_up(kRootNode, "f").error, EIO);
}

// ---- names and attributes

TEST_F(ServerTest, LookupFindsFilesAndSaysWhatTheyAre) {
  const auto entry = client_->look_up(kRootNode, "f").as<fuse_entry_out>();
  EXPECT_EQ(entry.attr.size, 7U);
  EXPECT_TRUE(S_ISREG(entry.attr.mode));
  EXPECT_EQ(entry.attr.uid, 1000U);
  EXPECT_EQ(entry.attr.gid, 1000U);
  EXPECT_EQ(client_->look_up(kRootNode, "absent").error, ENOENT);
  EXPECT_EQ(client_->look_up(entry.nodeid, "x").error, ENOTDIR);
}

TEST_F(ServerTest, OneFileIsOneNodeUnderAllItsNames) {
  fs::create_hard_link(host_ / "f", host_ / "d/same");
  EXPECT_EQ(client_->node("f"), client_->node("d/same"));
}

TEST_F(ServerTest, ANewFileOfTheSameNameIsANewNode) {
  const uint64_t before = client_->node("f");
  put("g", "other");
  fs::rename(host_ / "g", host_ / "f");
  EXPECT_NE(client_->node("f"), before);
  EXPECT_EQ(client_->get_attributes(before).error, ESTALE);
}

TEST_F(ServerTest, AFileIsFoundUnderAnotherOfItsNames) {
  fs::create_hard_link(host_ / "f", host_ / "d/same");
  const uint64_t node = client_->node("d/same");
  client_->node("f");
  fs::remove(host_ / "f");
  EXPECT_EQ(client_->attributes(node).size, 7U);
  EXPECT_EQ(client_->open(node, O_RDONLY).error, 0);
}

TEST_F(ServerTest, ForgottenNodesAreGone) {
  const uint64_t node = client_->node("f");
  client_->node("f");
  client_->forget(node, 1);
  EXPECT_EQ(client_->get_attributes(node).error, 0);
  client_->forget(node, 1);
  EXPECT_EQ(client_->get_attributes(node).error, ESTALE);
  EXPECT_NE(client_->node("f"), node);
}

TEST_F(ServerTest, BatchForgetForgetsEach) {
  const uint64_t a = client_->node("f");
  const uint64_t b = client_->node("d/inner");
  client_->tell(FUSE_BATCH_FORGET, 0,
                bytes_of(fuse_batch_forget_in{2, 0}) + bytes_of(fuse_forget_one{a, 1}) +
                    bytes_of(fuse_forget_one{b, 1}));
  EXPECT_EQ(client_->get_attributes(a).error, ESTALE);
  EXPECT_EQ(client_->get_attributes(b).error, ESTALE);
}

TEST_F(ServerTest, AttributesChange) {
  const uint64_t node = client_->node("f");
  EXPECT_EQ(client_->set_mode(node, 0640).error, 0);
  EXPECT_EQ(mode("f") & 07777, 0640U);
  EXPECT_EQ(client_->set_size(node, 3).as<fuse_attr_out>().attr.size, 3U);
  EXPECT_EQ(get("f"), "con");
  fuse_setattr_in in{};
  in.valid = FATTR_MTIME | FATTR_ATIME;
  in.mtime = 1'000'000'000;
  in.mtimensec = 5;
  in.atime = 7;
  EXPECT_EQ(client_->set_attributes(node, in).error, 0);
  struct stat st {};
  ::stat((host_ / "f").c_str(), &st);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'000'000'000);
  EXPECT_EQ(st.st_mtim.tv_nsec, 5);
  EXPECT_EQ(st.st_atim.tv_sec, 7);
  in.valid = FATTR_MTIME | FATTR_MTIME_NOW;
  EXPECT_EQ(client_->set_attributes(node, in).error, 0);
  ::stat((host_ / "f").c_str(), &st);
  EXPECT_GT(st.st_mtim.tv_sec, 1'000'000'000);
  EXPECT_EQ(st.st_atim.tv_sec, 7);
}

TEST_F(ServerTest, TimesOfASymlinkAreItsOwn) {
  fs::create_symlink("f", host_ / "link");
  fuse_setattr_in in{};
  in.valid = FATTR_MTIME;
  in.mtime = 12345;
  EXPECT_EQ(client_->set_attributes(client_->node("link"), in).error, 0);
  struct stat st {};
  ::lstat((host_ / "link").c_str(), &st);
  EXPECT_EQ(st.st_mtim.tv_sec, 12345);
  ::stat((host_ / "f").c_str(), &st);
  EXPECT_NE(st.st_mtim.tv_sec, 12345);
}

TEST_F(ServerTest, OwnersStayAsTheyAreShown) {
  const uint64_t node = client_->node("f");
  fuse_setattr_in in{};
  in.valid = FATTR_UID | FATTR_GID;
  in.uid = in.gid = 1000;
  EXPECT_EQ(client_->set_attributes(node, in).error, 0);
  in.uid = 0;
  EXPECT_EQ(client_->set_attributes(node, in).error, EPERM);
  in.uid = 1000;
  in.gid = 4;
  EXPECT_EQ(client_->set_attributes(node, in).error, EPERM);
  struct stat st {};
  ::stat((host_ / "f").c_str(), &st);
  EXPECT_EQ(st.st_uid, ::geteuid());
}

TEST_F(ServerTest, SetUserIdAndStickyAreNeverSet) {
  const uint64_t node = client_->node("f");
  EXPECT_EQ(client_->set_mode(node, 07755).error, 0);
  EXPECT_EQ(mode("f") & 07777, 0755U);
  create("new", O_RDWR, 06755);
  EXPECT_EQ(mode("new") & 07777, 0755U);
  EXPECT_EQ(client_->make_directory(kRootNode, "newdir", 07777).error, 0);
  EXPECT_EQ(mode("newdir") & 07777, 0777U);
  EXPECT_EQ(client_->make_node(kRootNode, "node", S_IFREG | 06711).error, 0);
  EXPECT_EQ(mode("node") & 07777, 0711U);
}

TEST_F(ServerTest, ADirectoryKeepsTheSetGroupIdThatItHas) {
  ::chmod((host_ / "d").c_str(), 02755);
  const uint64_t node = client_->node("d");
  EXPECT_EQ(client_->set_mode(node, 02700).error, 0);
  EXPECT_EQ(mode("d") & 07777, 02700U);
  EXPECT_EQ(client_->set_mode(node, 0700).error, 0);
  EXPECT_EQ(client_->set_mode(node, 02700).error, 0);
  EXPECT_EQ(mode("d") & 07777, 0700U);
}

// ---- making, removing, renaming

TEST_F(ServerTest, DirectoriesSymlinksAndNodesAreMade) {
  EXPECT_TRUE(S_ISDIR(client_->make_directory(kRootNode, "n").as<fuse_entry_out>().attr.mode));
  EXPECT_EQ(client_->make_directory(kRootNode, "n").error, EEXIST);
  const Reply link = client_->make_symlink(kRootNode, "l", "/etc/../passwd");
  EXPECT_TRUE(S_ISLNK(link.as<fuse_entry_out>().attr.mode));
  EXPECT_EQ(client_->call(FUSE_READLINK, link.as<fuse_entry_out>().nodeid).text(),
            "/etc/../passwd");
  EXPECT_EQ(client_->make_node(kRootNode, "r", S_IFREG | 0600).error, 0);
  EXPECT_EQ(client_->make_node(kRootNode, "p", S_IFIFO | 0600).error, 0);
  EXPECT_EQ(client_->make_node(kRootNode, "s", S_IFSOCK | 0600).error, 0);
  EXPECT_TRUE(S_ISFIFO(mode("p")));
  EXPECT_TRUE(S_ISSOCK(mode("s")));
}

TEST_F(ServerTest, ReadlinkOfSomethingElseIsInvalid) {
  EXPECT_EQ(client_->call(FUSE_READLINK, client_->node("f")).error, EINVAL);
  EXPECT_EQ(client_->call(FUSE_READLINK, client_->node("d")).error, EINVAL);
}

TEST_F(ServerTest, UnlinkAndRmdirRemoveWhatTheyAreFor) {
  EXPECT_EQ(client_->call(FUSE_UNLINK, kRootNode, name_bytes("d")).error, EISDIR);
  EXPECT_EQ(client_->call(FUSE_RMDIR, kRootNode, name_bytes("f")).error, ENOTDIR);
  EXPECT_EQ(client_->call(FUSE_RMDIR, kRootNode, name_bytes("d")).error, ENOTEMPTY);
  EXPECT_EQ(client_->call(FUSE_UNLINK, client_->node("d"), name_bytes("inner")).error, 0);
  EXPECT_EQ(client_->call(FUSE_RMDIR, kRootNode, name_bytes("d")).error, 0);
  EXPECT_EQ(client_->call(FUSE_UNLINK, kRootNode, name_bytes("f")).error, 0);
  EXPECT_TRUE(fs::is_empty(host_));
}

TEST_F(ServerTest, RenameMovesNodesAndWhatIsBelow) {
  const uint64_t d = client_->node("d");
  const uint64_t inner = client_->node("d/inner");
  client_->make_directory(kRootNode, "e");
  const uint64_t e = client_->node("e");
  EXPECT_EQ(client_->rename(kRootNode, "d", e, "moved").error, 0);
  EXPECT_EQ(client_->attributes(inner).size, 5U);
  EXPECT_EQ(client_->node("e/moved"), d);
  EXPECT_EQ(client_->node("e/moved/inner"), inner);
  EXPECT_EQ(client_->rename(kRootNode, "e", d, "loop").error, EINVAL);
}

TEST_F(ServerTest, OldRenameIsAnsweredToo) {
  fuse_rename_in in{};
  in.newdir = kRootNode;
  EXPECT_EQ(
      client_->call(FUSE_RENAME, kRootNode, bytes_of(in) + name_bytes("f") + name_bytes("g")).error,
      0);
  EXPECT_EQ(get("g"), "content");
}

TEST_F(ServerTest, RenameFlagsAreKept) {
  put("g", "other");
  const uint64_t f = client_->node("f");
  const uint64_t g = client_->node("g");
  EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, "g", RENAME_NOREPLACE).error, EEXIST);
  EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, "g", RENAME_EXCHANGE).error, 0);
  EXPECT_EQ(get("f"), "other");
  EXPECT_EQ(client_->node("f"), g);
  EXPECT_EQ(client_->node("g"), f);
  EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, "g", RENAME_WHITEOUT).error, EINVAL);
  EXPECT_EQ(client_->rename(kRootNode, "f", kRootNode, "g", 0xFFFFFFFF).error, EINVAL);
}

TEST_F(ServerTest, LinkGivesTheSameNode) {
  const uint64_t f = client_->node("f");
  const auto entry = client_->make_link(f, client_->node("d"), "same").as<fuse_entry_out>();
  EXPECT_EQ(entry.nodeid, f);
  EXPECT_EQ(entry.attr.nlink, 2U);
  EXPECT_EQ(get("d/same"), "content");
}

// ---- open files

TEST_F(ServerTest, FilesAreReadAndWritten) {
  const uint64_t node = client_->node("f");
  const uint64_t handle = FuseClient::handle_of(client_->open(node, O_RDWR));
  EXPECT_EQ(client_->read(node, handle, 0, 100).text(), "content");
  EXPECT_EQ(client_->read(node, handle, 3, 2).text(), "te");
  EXPECT_EQ(client_->read(node, handle, 7, 100).text(), "");
  EXPECT_EQ(client_->write(node, handle, 5, "XYZ").as<fuse_write_out>().size, 3U);
  EXPECT_EQ(get("f"), "conteXYZ");
  EXPECT_EQ(client_->release(node, handle).error, 0);
  EXPECT_EQ(client_->read(node, handle, 0, 1).error, EBADF);
  EXPECT_EQ(client_->tree().open_handles(), 0U);
}

TEST_F(ServerTest, OpenFlagsMeanWhatTheySay) {
  const uint64_t node = client_->node("f");
  const uint64_t reader = FuseClient::handle_of(client_->open(node, O_RDONLY));
  EXPECT_EQ(client_->write(node, reader, 0, "x").error, EBADF);
  const uint64_t writer = FuseClient::handle_of(client_->open(node, O_WRONLY));
  EXPECT_EQ(client_->read(node, writer, 0, 1).error, EBADF);
  EXPECT_EQ(client_->open(node, O_WRONLY | O_TRUNC).error, 0);
  EXPECT_EQ(get("f"), "");
}

TEST_F(ServerTest, AppendingEndsAtTheRealEnd) {
  const uint64_t node = client_->node("f");
  const uint64_t handle = FuseClient::handle_of(client_->open(node, O_WRONLY | O_APPEND));
  std::ofstream(host_ / "f", std::ios::app) << " host";
  EXPECT_EQ(client_->write(node, handle, 7, " guest").error, 0);
  EXPECT_EQ(get("f"), "content host guest");
}

TEST_F(ServerTest, PagesOfAMappingGoWhereTheyBelongEvenOnAnAppendingFile) {
  const uint64_t node = client_->node("f");
  const uint64_t handle = FuseClient::handle_of(client_->open(node, O_RDWR | O_APPEND));
  EXPECT_EQ(client_->write(node, handle, 0, "CON", FUSE_WRITE_CACHE).error, 0);
  EXPECT_EQ(client_->write(node, handle, 0, "!").error, 0);
  EXPECT_EQ(get("f"), "CONtent!");
}

TEST_F(ServerTest, CreateOpensWhatTheHostMadeMeanwhile) {
  put("late", "kept");
  const Reply reply = client_->create(kRootNode, "late", O_RDWR, 0600);
  ASSERT_EQ(reply.error, 0);
  EXPECT_EQ(
      client_->read(reply.as<fuse_entry_out>().nodeid, FuseClient::created_handle(reply), 0, 9)
          .text(),
      "kept");
  EXPECT_EQ(client_->create(kRootNode, "late", O_RDWR | O_EXCL, 0600).error, EEXIST);
  const Reply truncated = client_->create(kRootNode, "late", O_RDWR | O_TRUNC, 0600);
  EXPECT_EQ(truncated.as<fuse_entry_out>().attr.size, 0U);
}

TEST_F(ServerTest, CreateDoesNotFollowASymlink) {
  fs::create_symlink(temp_.path() / "outside", host_ / "link");
  EXPECT_EQ(client_->create(kRootNode, "link", O_RDWR, 0600).error, ELOOP);
  EXPECT_FALSE(fs::exists(temp_.path() / "outside"));
}

TEST_F(ServerTest, AFileCreatedReadOnlyIsStillWritable) {
  const Open file = create("ro", O_RDWR, 0444);
  EXPECT_EQ(client_->write(file.node, file.handle, 0, "x").error, 0);
}

TEST_F(ServerTest, UnlinkedFilesWorkWhileOpen) {
  const Open file = create("gone");
  client_->write(file.node, file.handle, 0, "data");
  EXPECT_EQ(client_->call(FUSE_UNLINK, kRootNode, name_bytes("gone")).error, 0);
  EXPECT_EQ(client_->read(file.node, file.handle, 0, 10).text(), "data");
  EXPECT_EQ(client_->attributes(file.node).nlink, 0U);
  EXPECT_EQ(client_->set_size(file.node, 2).error, 0);
  EXPECT_EQ(client_->set_mode(file.node, 0600).error, 0);
  EXPECT_EQ(client_->read(file.node, file.handle, 0, 10).text(), "da");
  client_->release(file.node, file.handle);
  EXPECT_EQ(client_->get_attributes(file.node).error, ESTALE);
}

TEST_F(ServerTest, FilesReplacedByRenameWorkWhileOpen) {
  const Open old = create("target");
  client_->write(old.node, old.handle, 0, "old");
  const Open fresh = create("fresh");
  client_->write(fresh.node, fresh.handle, 0, "new");
  EXPECT_EQ(client_->rename(kRootNode, "fresh", kRootNode, "target").error, 0);
  EXPECT_EQ(client_->read(old.node, old.handle, 0, 9).text(), "old");
  EXPECT_EQ(client_->node("target"), fresh.node);
}

TEST_F(ServerTest, SyncAllocateSeekAndCopy) {
  const Open a = create("a");
  const Open b = create("b");
  client_->write(a.node, a.handle, 1 << 20, "end");
  for (const uint32_t flags : {0U, 1U}) {
    fuse_fsync_in in{};
    in.fh = a.handle;
    in.fsync_flags = flags;
    EXPECT_EQ(client_->call(FUSE_FSYNC, a.node, bytes_of(in)).error, 0);
  }
  fuse_lseek_in seek{a.handle, 0, SEEK_DATA, 0};
  const Reply data = client_->call(FUSE_LSEEK, a.node, bytes_of(seek));
  EXPECT_EQ(data.error, 0);
  seek.whence = SEEK_SET;
  EXPECT_EQ(client_->call(FUSE_LSEEK, a.node, bytes_of(seek)).error, EINVAL);
  fuse_copy_file_range_in copy{};
  copy.fh_in = a.handle;
  copy.off_in = 1 << 20;
  copy.nodeid_out = b.node;
  copy.fh_out = b.handle;
  copy.len = 100;
  EXPECT_EQ(client_->call(FUSE_COPY_FILE_RANGE, a.node, bytes_of(copy)).as<fuse_write_out>().size,
            3U);
  EXPECT_EQ(get("b"), "end");
  fuse_fallocate_in allocate{};
  allocate.fh = b.handle;
  allocate.length = 4096;
  const Reply allocated = client_->call(FUSE_FALLOCATE, b.node, bytes_of(allocate));
  EXPECT_TRUE(allocated.error == 0 || allocated.error == EOPNOTSUPP);
  allocate.mode = 0x40;  // unshare
  EXPECT_EQ(client_->call(FUSE_FALLOCATE, b.node, bytes_of(allocate)).error, EOPNOTSUPP);
}

TEST_F(ServerTest, StatfsSaysTheHostsSpace) {
  const auto out = client_->call(FUSE_STATFS, kRootNode).as<fuse_statfs_out>();
  EXPECT_GT(out.st.blocks, 0U);
  EXPECT_EQ(out.st.namelen, 255U);
}

TEST_F(ServerTest, WhatIsNotOfferedIsNotImplemented) {
  for (const uint32_t opcode :
       {FUSE_GETXATTR, FUSE_LISTXATTR, FUSE_SETXATTR, FUSE_REMOVEXATTR, FUSE_FLUSH, FUSE_GETLK,
        FUSE_SETLK, FUSE_SETLKW, FUSE_ACCESS, FUSE_BMAP, FUSE_IOCTL, FUSE_POLL, FUSE_SETUPMAPPING,
        FUSE_REMOVEMAPPING, FUSE_SYNCFS, FUSE_TMPFILE})
    EXPECT_EQ(client_->call(opcode, kRootNode, Bytes(200)).error, ENOSYS) << opcode;
}

TEST_F(ServerTest, InterruptGetsNoReply) {
  client_->tell(FUSE_INTERRUPT, 0, bytes_of(fuse_interrupt_in{5}));
}

// ---- directories

TEST_F(ServerTest, ListingsHaveEveryNameOnceWhateverTheReplySize) {
  std::set<std::string> wanted = {".", "..", "f", "d"};
  for (int i = 0; i < 300; ++i) {
    const std::string name =
        "n" + std::string(static_cast<size_t>(i % 200), 'x') + std::to_string(i);
    put(name, "");
    wanted.insert(name);
  }
  for (const bool plus : {false, true})
    for (const uint32_t size : {512U, 4096U, 1U << 20}) {
      std::multiset<std::string> got;
      for (const auto& listed : client_->list(kRootNode, plus, size)) got.insert(listed.name);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()))
          << plus << " " << size << " " << got.size();
    }
}

TEST_F(ServerTest, AListingWithAttributesCountsAsLookups) {
  uint64_t f = 0;
  for (const auto& listed : client_->list(kRootNode, true)) {
    if (listed.name == "f") f = listed.node;
    EXPECT_EQ(listed.node == 0, listed.name == "." || listed.name == "..");
  }
  EXPECT_EQ(client_->attributes(f).size, 7U);
  client_->forget(f, 1);
  EXPECT_EQ(client_->get_attributes(f).error, ESTALE);
}

TEST_F(ServerTest, AListingContinuesFromAnyOffsetItGave) {
  for (int i = 0; i < 50; ++i) put("n" + std::to_string(i), "");
  const auto all = client_->list(kRootNode, false);
  const uint64_t handle =
      FuseClient::handle_of(client_->call(FUSE_OPENDIR, kRootNode, FuseClient::open_body(0)));
  for (size_t i = all.size() - 2; i > 0; i -= 7) {
    const Reply reply =
        client_->call(FUSE_READDIR, kRootNode, FuseClient::read_body(handle, all[i].offset, 4096));
    ASSERT_FALSE(reply.body.empty());
    const auto entry = reply.as<fuse_dirent>();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(reply.body.data()) + FUSE_NAME_OFFSET,
                          entry.namelen),
              all[i + 1].name);
    if (i < 7) break;
  }
}

class FewDescriptors : public ServerTest {
 protected:
  FewDescriptors() {
    for (int i = 0; i < 500; ++i) {
      fs::create_directory(host_ / ("dir" + std::to_string(i)));
      for (int j = 0; j < 10; ++j) put("dir" + std::to_string(i) + "/" + std::to_string(j), "x");
    }
  }
  TreeOptions options() override {
    TreeOptions out;
    out.cached_fds = 64;
    out.open_handles = 64;
    return out;
  }
};

TEST_F(FewDescriptors, FiveThousandFilesAreListedAndReadWithSixtyFour) {
  size_t files = 0;
  std::vector<uint64_t> nodes;
  for (const auto& directory : client_->list(kRootNode, true)) {
    if (!directory.name.starts_with("dir")) continue;
    for (const auto& file : client_->list(directory.node, true))
      if (file.node != 0) nodes.push_back(file.node);
  }
  for (const uint64_t node : nodes) {
    const Reply opened = client_->open(node, O_RDONLY);
    ASSERT_EQ(opened.error, 0);
    EXPECT_EQ(client_->read(node, FuseClient::handle_of(opened), 0, 4).text(), "x");
    client_->release(node, FuseClient::handle_of(opened));
    ++files;
  }
  EXPECT_EQ(files, 5000U);
  EXPECT_LE(client_->tree().cached_fds(), 64U);
}

TEST_F(FewDescriptors, TooManyOpenFilesIsAnErrorOfTheGuest) {
  const uint64_t node = client_->node("f");
  std::vector<uint64_t> handles;
  int error = 0;
  for (int i = 0; i < 100 && error == 0; ++i) {
    const Reply reply = client_->open(node, O_RDONLY);
    error = reply.error;
    if (error == 0) handles.push_back(FuseClient::handle_of(reply));
  }
  EXPECT_EQ(error, ENFILE);
  EXPECT_EQ(handles.size(), 64U);
  EXPECT_EQ(client_->create(kRootNode, "more", O_RDWR, 0600).error, ENFILE);
  EXPECT_FALSE(fs::exists(host_ / "more"));
  client_->release(node, handles[0]);
  EXPECT_EQ(client_->open(node, O_RDONLY).error, 0);
}

// ---- freshness

TEST_F(ServerTest, WhatTheGuestItselfChangedIsNotSentBack) {
  client_->list(kRootNode, true);
  changes();
  const Open file = create("own");
  client_->write(file.node, file.handle, 0, "data");
  client_->set_mode(file.node, 0600);
  client_->make_directory(kRootNode, "owndir");
  client_->rename(kRootNode, "own", kRootNode, "own2");
  client_->call(FUSE_UNLINK, kRootNode, name_bytes("own2"));
  EXPECT_TRUE(changes().empty());
}

TEST_F(ServerTest, RenamesAndLinksOfTheGuestKeepItsPages) {
  client_->make_directory(kRootNode, "e");
  const uint64_t e = client_->node("e");
  const uint64_t f = client_->node("f");
  client_->list(e, true);
  // A stamp within the last ticks of the clock is not trusted to be the last one.
  fs::last_write_time(host_ / "f", fs::file_time_type::clock::now() - std::chrono::hours(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  client_->open(f, O_RDONLY);
  changes();
  EXPECT_EQ(client_->rename(kRootNode, "f", e, "g").error, 0);
  EXPECT_EQ(client_->make_link(f, kRootNode, "h").error, 0);
  EXPECT_EQ(client_->rename(kRootNode, "h", e, "g", RENAME_EXCHANGE).error, 0);
  EXPECT_TRUE(changes().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(client_->open(f, O_RDONLY).as<fuse_open_out>().open_flags, FOPEN_KEEP_CACHE);
}

TEST_F(ServerTest, AnOpenAfterAHostEditDropsThePages) {
  const uint64_t f = client_->node("f");
  client_->open(f, O_RDONLY);
  put("f", "changed");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(client_->open(f, O_RDONLY).as<fuse_open_out>().open_flags, 0U);
}

TEST_F(ServerTest, AHostEditInvalidatesContent) {
  const uint64_t node = client_->node("f");
  changes();
  put("f", "something longer");
  const auto got = changes();
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got.back().kind, Invalidation::Kind::kContent);
  EXPECT_EQ(got.back().node, node);
}

TEST_F(ServerTest, AHostReplacementInvalidatesTheName) {
  client_->node("f");
  put("d/new", "new");
  changes();
  fs::rename(host_ / "d/new", host_ / "f");
  const auto got = changes();
  EXPECT_TRUE(std::any_of(got.begin(), got.end(), [](const Invalidation& i) {
    return i.kind == Invalidation::Kind::kEntry && i.node == kRootNode && i.name == "f";
  }));
}

TEST_F(ServerTest, NamesInWatchedDirectoriesMayBeCachedAndOthersNot) {
  EXPECT_EQ(client_->look_up(kRootNode, "f").as<fuse_entry_out>().entry_valid, kCacheSeconds);
  TreeOptions blind;
  blind.watches = 0;
  FuseClient unwatched(host_.string(), blind);
  unwatched.init();
  const auto entry = unwatched.look_up(kRootNode, "f").as<fuse_entry_out>();
  EXPECT_EQ(entry.entry_valid, 0U);
  EXPECT_EQ(entry.attr_valid, 0U);
}

TEST_F(ServerTest, ADirectoryThatTheHostMovedKeepsItsNode) {
  const uint64_t inner = client_->node("d/inner");
  fs::rename(host_ / "d", host_ / "e");
  changes();
  EXPECT_EQ(client_->attributes(inner).size, 5U);
}

TEST_F(ServerTest, ForgottenDirectoriesAreWatchedNoMore) {
  const uint64_t d = client_->node("d");
  client_->look_up(d, "inner");
  EXPECT_EQ(client_->tree().watches(), 2U);
  client_->forget(d, 1);
  EXPECT_EQ(client_->tree().watches(), 1U);
}

TEST_F(ServerTest, NotificationsHaveTheirShape) {
  Bytes out;
  Server::notify({Invalidation::Kind::kEntry, 5, "name"}, out);
  fuse_out_header header{};
  std::memcpy(&header, out.data(), sizeof header);
  EXPECT_EQ(header.len, out.size());
  EXPECT_EQ(out.size(), sizeof header + sizeof(fuse_notify_inval_entry_out) + 5);
  EXPECT_EQ(header.error, FUSE_NOTIFY_INVAL_ENTRY);
  EXPECT_EQ(header.unique, 0U);
  out.clear();
  Server::notify({Invalidation::Kind::kContent, 9, {}}, out);
  fuse_notify_inval_inode_out body{};
  std::memcpy(&body, out.data() + sizeof header, sizeof body);
  EXPECT_EQ(body.ino, 9U);
  EXPECT_EQ(body.off, 0);
}

// ---- a single file

TEST(SingleFile, IsAllThereIs) {
  TempTree temp;
  std::ofstream(temp.path() / "one") << "1";
  std::ofstream(temp.path() / "other") << "2";
  FuseClient client((temp.path() / "one").string(), {});
  client.init();
  EXPECT_TRUE(S_ISREG(client.attributes(kRootNode).mode));
  EXPECT_EQ(client.look_up(kRootNode, "other").error, ENOTDIR);
  EXPECT_EQ(client.look_up(kRootNode, "..").error, EINVAL);
  const uint64_t handle = FuseClient::handle_of(client.open(kRootNode, O_RDWR));
  EXPECT_EQ(client.read(kRootNode, handle, 0, 9).text(), "1");
  EXPECT_EQ(client.write(kRootNode, handle, 0, "3").error, 0);
  EXPECT_EQ(client.call(FUSE_OPENDIR, kRootNode, FuseClient::open_body(0)).error, ENOTDIR);
}

}  // namespace
}  // namespace sandbox::files
