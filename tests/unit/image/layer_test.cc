#include "image/layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/image/layer_fixture.h"
#include "unit/image/tar_builder.h"

namespace sandbox {
namespace {

using test::gzip;
using test::Merge;
using test::TarBuilder;
using test::TarEntry;
using testing::ElementsAre;

#define ASSERT_OK(expr)                                  \
  do {                                                   \
    const Status ok_status = (expr);                     \
    ASSERT_TRUE(ok_status) << ok_status.error().message; \
  } while (false)

// ---- merging ----

TEST(Merge, AnUpperLayerAddsAndReplaces) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().folder("etc").file("etc/a", "1").file("etc/b", "2").finish()));
  ASSERT_OK(merge.add(TarBuilder().file("etc/b", "new").file("etc/c", "3").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/etc/", "/etc/a = 1", "/etc/b = new", "/etc/c = 3"));
  EXPECT_THAT(merge.sink.discarded(), ElementsAre("2"));
}

TEST(Merge, AWhiteoutRemovesOnlyWhatLowerLayersPut) {
  for (const bool whiteout_first : {true, false}) {
    Merge merge;
    ASSERT_OK(merge.add(TarBuilder().file("d/low", "1").file("d/other", "2").finish()));
    TarBuilder upper;
    if (whiteout_first) upper.file("d/.wh.low", "").file(".wh.d", "");
    upper.file("d/new", "3");
    if (!whiteout_first) upper.file(".wh.d", "").file("d/.wh.low", "");
    ASSERT_OK(merge.add(upper.finish()));
    EXPECT_THAT(merge.listing(), ElementsAre("/d/", "/d/new = 3")) << whiteout_first;
  }
}

TEST(Merge, AnOpaqueFolderHidesLowerLayersWhereverItsMarkStands) {
  for (const bool mark_first : {true, false}) {
    Merge merge;
    ASSERT_OK(merge.add(TarBuilder()
                            .folder("d", 0700)
                            .file("d/x", "1")
                            .file("d/sub/y", "2")
                            .file("e", "3")
                            .finish()));
    TarBuilder upper;
    if (mark_first) upper.file("d/.wh..wh..opq", "");
    upper.folder("d").file("d/sub/z", "4");
    if (!mark_first) upper.file("d/.wh..wh..opq", "");
    ASSERT_OK(merge.add(upper.finish()));
    EXPECT_THAT(merge.listing(), ElementsAre("/d/", "/d/sub/", "/d/sub/z = 4", "/e = 3"))
        << mark_first;
    EXPECT_EQ(merge.inode("d")->mode, 0755U);
  }
}

TEST(Merge, AnOpaqueRootStartsAnew) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().file("a", "1").file("b/c", "2").finish()));
  ASSERT_OK(merge.add(TarBuilder().file(".wh..wh..opq", "").file("d", "3").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/d = 3"));
}

TEST(Merge, AWhiteoutOfNothingIsFine) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder()
                          .file("no/such/.wh.thing", "")
                          .file(".wh.gone", "")
                          .file(".wh..wh.plnk", "")
                          .finish()));
  EXPECT_THAT(merge.listing(), ElementsAre());
}

TEST(Merge, AFileReplacesADirectoryAndTheOtherWayRound) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().file("a/in", "1").file("b", "2").finish()));
  ASSERT_OK(merge.add(TarBuilder().file("a", "file").folder("b").file("b/in", "3").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/a = file", "/b/", "/b/in = 3"));
}

TEST(Merge, ADirectoryOverADirectoryTakesTheMetadataAndKeepsTheContent) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().folder("d", 0755).file("d/x", "1").finish()));
  ASSERT_OK(merge.add(TarBuilder().folder("d", 01777).finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/d/", "/d/x = 1"));
  EXPECT_EQ(merge.inode("d")->mode, 01777U);
}

TEST(Merge, OfDuplicateEntriesTheLastCounts) {
  Merge merge;
  ASSERT_OK(merge.add(
      TarBuilder().file("x", "first").file("./x", "second").file("/x", "third").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/x = third"));
  EXPECT_THAT(merge.sink.discarded(), ElementsAre("first", "second"));
}

TEST(Merge, AHardLinkSharesTheFileAlsoOfALowerLayer) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().file("bin/a", "tool").finish()));
  ASSERT_OK(merge.add(TarBuilder().hardlink("bin/b", "/bin/a").hardlink("c", "./bin/b").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/bin/", "/bin/a = tool", "/bin/b = tool", "/c = tool"));
  EXPECT_EQ(merge.inode("bin/a"), merge.inode("c"));
  EXPECT_EQ(merge.inode("c")->links, 3U);
}

TEST(Merge, AHardLinkOutlivesTheNameItWasMadeFrom) {
  for (const bool whiteout_first : {true, false}) {
    Merge merge;
    ASSERT_OK(merge.add(TarBuilder().file("a", "kept").finish()));
    TarBuilder upper;
    if (whiteout_first) upper.file(".wh.a", "");
    upper.hardlink("b", "a");
    if (!whiteout_first) upper.file(".wh.a", "");
    ASSERT_OK(merge.add(upper.finish()));
    EXPECT_THAT(merge.listing(), ElementsAre("/b = kept"));
    EXPECT_EQ(merge.inode("b")->links, 1U);
    EXPECT_THAT(merge.sink.discarded(), ElementsAre());
  }
}

TEST(Merge, AHardLinkToItselfChangesNothing) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().file("a", "1").hardlink("a", "a").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/a = 1"));
  EXPECT_EQ(merge.inode("a")->links, 1U);
}

TEST(Merge, MissingParentsAppearWithFixedMetadata) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().file("a/b/c", "1").finish()));
  EXPECT_EQ(merge.inode("a/b")->mode, 0755U);
  EXPECT_EQ(merge.inode("a/b")->mtime, 0);
}

TEST(Merge, ParentsThatAreSymbolicLinksAreFollowedInsideTheImage) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder()
                          .folder("usr/lib")
                          .symlink("lib", "usr/lib")
                          .symlink("abs", "/usr")
                          .symlink("up", "../../../usr")
                          .finish()));
  ASSERT_OK(
      merge.add(TarBuilder().file("lib/x", "1").file("abs/y", "2").file("up/z", "3").finish()));
  EXPECT_THAT(merge.listing(),
              ElementsAre("/abs -> /usr", "/lib -> usr/lib", "/up -> ../../../usr", "/usr/",
                          "/usr/lib/", "/usr/lib/x = 1", "/usr/y = 2", "/usr/z = 3"));
}

TEST(Merge, ASymbolicLinkIsReplacedAndNotFollowedAsTheLastPart) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().symlink("a", "/etc/passwd").finish()));
  ASSERT_OK(merge.add(TarBuilder().file("a", "mine").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/a = mine"));
}

// ---- archives as they are found ----

TEST(Layer, IsReadPlainGzippedAndZstandard) {
  const std::string tar = TarBuilder().file("x", std::string(300'000, 'x')).finish();
  for (const std::string& blob : {tar, gzip(tar), test::zstd(tar)}) {
    Merge merge;
    ASSERT_OK(merge.add_as(blob, tar));
    EXPECT_EQ(merge.inode("x")->size, 300'000U);
    EXPECT_EQ(merge.sink.content(*merge.inode("x")), std::string(300'000, 'x'));
  }
}

TEST(Layer, AnEmptyArchiveIsAnEmptyLayer) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder().finish()));
  ASSERT_OK(merge.add_as(gzip(TarBuilder().finish()), TarBuilder().finish()));
  ASSERT_OK(merge.add(""));
  EXPECT_THAT(merge.listing(), ElementsAre());
}

TEST(Layer, KeepsOwnersModesTimesAndDevices) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder()
                          .add({.name = "f",
                                .content = "x",
                                .mode = 06755,
                                .uid = 1000,
                                .gid = 5,
                                .mtime = 1700000000})
                          .add({.name = "null", .type = '3', .mode = 0666, .major = 1, .minor = 3})
                          .add({.name = "sda", .type = '4', .major = 8, .minor = 0})
                          .add({.name = "pipe", .type = '6'})
                          .finish()));
  EXPECT_THAT(merge.listing(),
              ElementsAre("/f = x", "/null device 1:3", "/pipe fifo", "/sda device 8:0"));
  EXPECT_EQ(merge.inode("f")->mode, 06755U);
  EXPECT_EQ(merge.inode("f")->uid, 1000U);
  EXPECT_EQ(merge.inode("f")->gid, 5U);
  EXPECT_EQ(merge.inode("f")->mtime, 1700000000);
}

TEST(Layer, ReadsBase256Numbers) {
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder()
                          .add({.name = "f",
                                .content = "x",
                                .uid = 3'000'000'000U,
                                .mtime = 5'000'000'000ULL,
                                .base256 = true})
                          .finish()));
  EXPECT_EQ(merge.inode("f")->uid, 3'000'000'000U);
  EXPECT_EQ(merge.inode("f")->mtime, 5'000'000'000);
}

TEST(Layer, ReadsLongNamesOfBothKinds) {
  const std::string gnu = std::string(150, 'g') + "/" + std::string(200, 'h');
  const std::string pax = std::string(180, 'p') + "/ü";
  Merge merge;
  ASSERT_OK(
      merge.add(TarBuilder()
                    .gnu_long('L', gnu)
                    .add({.name = "short", .content = "1", .raw_magic = "ustar  "})
                    .gnu_long('K', std::string(300, 't'))
                    .add({.name = "link", .type = '2', .link = "ttt", .raw_magic = "ustar  "})
                    .add({.name = "x", .content = "2", .pax = {{"path", pax}, {"mtime", "1.25"}}})
                    .finish()));
  EXPECT_NE(merge.inode(gnu), nullptr);
  EXPECT_EQ(merge.inode("link")->target, std::string(300, 't'));
  ASSERT_NE(merge.inode(pax), nullptr);
  EXPECT_EQ(merge.inode(pax)->mtime_ns, 250'000'000U);
}

TEST(Layer, KeepsTheAttributesThatMeanTheSameInside) {
  Merge merge;
  const std::string capability("\x01\0\0\x02\0 \0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  ASSERT_OK(merge.add(TarBuilder()
                          .add({.name = "ping",
                                .content = "x",
                                .pax = {{"SCHILY.xattr.security.capability", capability},
                                        {"SCHILY.xattr.user.note", "hi"},
                                        {"SCHILY.xattr.security.selinux", "label"},
                                        {"SCHILY.xattr.trusted.overlay.opaque", "y"}}})
                          .finish()));
  EXPECT_THAT(merge.inode("ping")->xattrs,
              testing::UnorderedElementsAre(
                  std::pair<std::string, std::string>("security.capability", capability),
                  std::pair<std::string, std::string>("user.note", "hi")));
}

TEST(Layer, ReadsSparseFiles) {
  // pax sparse format 1.0: the map is the first block of the content.
  std::string map = "2\n0\n3\n100000\n4\n";
  map.resize(512, '\0');
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder()
                          .add({.name = "GNUSparseFile.0/s",
                                .content = map + "abcdefg",
                                .pax = {{"GNU.sparse.major", "1"},
                                        {"GNU.sparse.minor", "0"},
                                        {"GNU.sparse.name", "s"},
                                        {"GNU.sparse.realsize", "200000"}}})
                          .finish()));
  ASSERT_NE(merge.inode("s"), nullptr);
  EXPECT_EQ(merge.inode("s")->size, 200'000U);
  const std::string content = merge.sink.content(*merge.inode("s"));
  EXPECT_EQ(content.substr(0, 4), std::string("abc\0", 4));
  EXPECT_EQ(content.substr(100'000), "defg");
}

// ---- hostile archives: an error each ----

struct Hostile {
  const char* name;
  std::string tar;
  Code code;
  const char* message;
};

TEST(Layer, RejectsHostileArchives) {
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "d/";
  TarBuilder loop;
  loop.symlink("a", "b").symlink("b", "a").file("a/x", "");
  const Hostile kCases[] = {
      {"name leaves the root", TarBuilder().file("../x", "").finish(), Code::kInvalid, "leaves"},
      {"name leaves the root later", TarBuilder().file("a/../../x", "").finish(), Code::kInvalid,
       "leaves"},
      {"absolute name leaves", TarBuilder().file("/../x", "").finish(), Code::kInvalid, "leaves"},
      {"hard link out", TarBuilder().hardlink("a", "../../etc/shadow").finish(), Code::kInvalid,
       "leaves"},
      {"hard link to nothing", TarBuilder().hardlink("a", "etc/shadow").finish(), Code::kInvalid,
       "no layer contains"},
      {"hard link to a directory", TarBuilder().folder("d").hardlink("a", "d").finish(),
       Code::kInvalid, "directory"},
      {"hard link to the root", TarBuilder().hardlink("a", "/").finish(), Code::kInvalid, "root"},
      {"whiteout out", TarBuilder().file("../.wh.x", "").finish(), Code::kInvalid, "leaves"},
      {"whiteout of nothing", TarBuilder().file(".wh.", "").finish(), Code::kInvalid,
       "names nothing"},
      {"whiteout of dot", TarBuilder().file("a/.wh..", "").finish(), Code::kInvalid,
       "names nothing"},
      {"whiteout of dot dot", TarBuilder().file("a/.wh...", "").finish(), Code::kInvalid,
       "names nothing"},
      {"the root as a file", TarBuilder().file(".", "x").finish(), Code::kInvalid, "root"},
      {"symbolic links in a circle", loop.finish(), Code::kInvalid, "symbolic links"},
      {"an empty link target", TarBuilder().symlink("a", "").finish(), Code::kInvalid, "target"},
      {"too deep", TarBuilder().add({.name = "x", .pax = {{"path", deep + "x"}}}).finish(),
       Code::kLimit, "deep"},
      {"a part too long",
       TarBuilder().add({.name = "x", .pax = {{"path", std::string(256, 'n')}}}).finish(),
       Code::kLimit, "part"},
      {"a name too long",
       TarBuilder()
           .add({.name = "x",
                 .pax = {{"path", std::string(2100, 'n') + "/" + std::string(2100, 'n')}}})
           .finish(),
       Code::kLimit, "longer"},
      {"attributes too large",
       TarBuilder()
           .add({.name = "x", .pax = {{"SCHILY.xattr.user.x", std::string(4000, 'v')}}})
           .finish(),
       Code::kLimit, "attributes"},
      {"a device number too large",
       TarBuilder().add({.name = "x", .type = '3', .major = 4096}).finish(), Code::kInvalid,
       "device"},
      {"a uid beyond 32 bits",
       TarBuilder().add({.name = "x", .pax = {{"uid", "4294967296"}}}).finish(), Code::kInvalid,
       "uid"},
      {"content cut off",
       TarBuilder().add({.name = "x", .content = "abc", .claimed_size = 1'000'000}).unfinished(),
       Code::kInvalid, "tar"},
      {"header cut off", TarBuilder().file("x", "abc").raw("half a header").unfinished(),
       Code::kInvalid, "tar"},
      {"a terabyte claimed",
       TarBuilder().add({.name = "x", .claimed_size = 1ULL << 40, .base256 = true}).finish(),
       Code::kInvalid, "tar"},
      {"no archive at all", "this is not a tar archive, however long one reads it", Code::kInvalid,
       "tar"},
  };
  for (const Hostile& hostile : kCases) {
    for (const bool packed : {false, true}) {
      Merge merge;
      const Status status =
          packed ? merge.add_as(gzip(hostile.tar), hostile.tar) : merge.add(hostile.tar);
      ASSERT_FALSE(status) << hostile.name;
      EXPECT_EQ(status.error().code, hostile.code)
          << hostile.name << ": " << status.error().message;
      EXPECT_NE(status.error().message.find(hostile.message), std::string::npos)
          << hostile.name << ": " << status.error().message;
    }
  }
}

TEST(Layer, HarmlessOddNamesAreTakenIn) {
  Merge merge;
  ASSERT_OK(merge.add(
      TarBuilder().file("//a//./b/../c", "1").file("/abs", "2").file(".hidden", "3").finish()));
  EXPECT_THAT(merge.listing(), ElementsAre("/.hidden = 3", "/a/", "/a/c = 1", "/abs = 2"));
}

TEST(Layer, DeepFoldersThroughLinksAreBounded) {
  std::string half;
  for (int i = 0; i < 150; ++i) half += "d/";
  Merge merge;
  ASSERT_OK(merge.add(TarBuilder()
                          .add({.name = "x", .type = '5', .pax = {{"path", half}}})
                          .symlink("l", half.substr(0, 90))
                          .finish()));
  // 45 folders by the link and 250 below.
  std::string below;
  for (int i = 0; i < 250; ++i) below += "e/";
  const Status status = merge.add(
      TarBuilder().add({.name = "x", .type = '5', .pax = {{"path", "l/" + below}}}).finish());
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
}

TEST(Layer, ABlobOfAnotherDigestIsTamperedWith) {
  const std::string tar = TarBuilder().file("x", "1").finish();
  Merge merge;
  const Status status = merge.add_blob(tar, {Digest::of(as_bytes("other")), tar.size(), ""},
                                       Digest::of(as_bytes(tar)));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kTampered);
  EXPECT_NE(status.error().message.find("layer"), std::string::npos);
}

TEST(Layer, AWrongDiffIdIsTamperedWith) {
  const std::string tar = TarBuilder().file("x", "1").finish();
  Merge merge;
  const Status status = merge.add_as(gzip(tar), tar + "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kTampered);
}

TEST(Layer, BytesBehindTheArchiveBelongToTheDiffId) {
  const std::string tar = TarBuilder().file("x", "1").finish();
  const std::string padded = tar + std::string(100'000, '\0');
  Merge merge;
  ASSERT_OK(merge.add_as(gzip(padded), padded));
  Merge other;
  EXPECT_FALSE(other.add_as(gzip(padded), tar));
}

TEST(Layer, ATruncatedOrProlongedBlobIsTamperedWith) {
  const std::string tar = TarBuilder().file("x", std::string(50'000, 'x')).finish();
  const std::string blob = gzip(tar);
  const Descriptor promised{Digest::of(as_bytes(blob)), blob.size(), ""};
  for (const std::string& actual :
       {blob.substr(0, blob.size() / 2), blob.substr(0, blob.size() - 1), std::string(), blob + "x",
        blob + blob}) {
    Merge merge;
    const Status status = merge.add_blob(actual, promised, Digest::of(as_bytes(tar)));
    ASSERT_FALSE(status) << actual.size();
    EXPECT_EQ(status.error().code, Code::kTampered) << status.error().message;
  }
}

TEST(Layer, AnArchiveThatWasPackedCutOffIsAnError) {
  const std::string tar = TarBuilder().file("x", std::string(50'000, 'x')).finish();
  const std::string blob = gzip(tar).substr(0, 100);  // its digest is right: it was made this way
  Merge merge;
  const Status status = merge.add_as(blob, tar);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalid);
}

TEST(Layer, ABombEndsAtTheBudget) {
  const std::string tar = TarBuilder().file("x", std::string(4U << 20, '\0')).finish();
  Merge merge;
  merge.budget.uncompressed_left = 1U << 20;
  const Status status = merge.add_as(gzip(tar), tar);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
  EXPECT_NE(status.error().message.find("unpacks to more than"), std::string::npos);
}

TEST(Layer, CancellingEndsTheReading) {
  struct Cancelled final : Progress {
    void step(std::string_view) override {}
    void advance(uint64_t, uint64_t) override {}
    [[nodiscard]] bool cancelled() const override { return true; }
  } cancelled;
  const std::string tar = TarBuilder().file("x", "1").finish();
  auto fd = memory_file("layer", tar);
  ASSERT_TRUE(fd);
  Merge merge;
  const Digest digest = Digest::of(as_bytes(tar));
  const Status status = read_layer({fd->get(), {digest, tar.size(), ""}, digest, "layer"},
                                   merge.tree, merge.sink, merge.budget, cancelled);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCancelled);
}

TEST(FileTree, EntriesAreBounded) {
  FileTree tree;
  tree.begin_layer();
  FileInode inode;
  Status status;
  size_t taken = 0;
  while (taken <= FileTree::kMaxEntries && (status = tree.put("same", inode))) ++taken;
  EXPECT_EQ(taken, FileTree::kMaxEntries);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
}

}  // namespace
}  // namespace sandbox
