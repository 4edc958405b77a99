#include "image/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/process.h"
#include "image/digest.h"
#include "image/fetch.h"
#include "unit/image/layer_fixture.h"
#include "unit/image/tar_builder.h"

namespace sandbox {
namespace {

namespace fs = std::filesystem;
using test::TarBuilder;
using testing::HasSubstr;

// An OCI layout on disk, made file by file, and a store beside it. skopeo copies from the one for
// the other.
class Store : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "sandbox-store-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    layout_ = folder_ + "/layout";
    fs::create_directories(layout_ + "/blobs/sha256");
    write("oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
    auto home = Home::open_at(folder_ + "/home");
    ASSERT_TRUE(home);
    home_.emplace(*home);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& content) {
    std::ofstream(layout_ + "/" + name, std::ios::binary) << content;
  }
  std::string blob(const std::string& content) {
    const Digest digest = Digest::of(as_bytes(content));
    write("blobs/sha256/" + digest.hex(), content);
    return digest.text();
  }
  // Writes an image of these layers; `diff_of` is what the configuration says each unpacks to.
  void make_image(const std::vector<std::string>& tars, const std::string& diff_of = "",
                  const std::string& architecture = "amd64") {
    std::string diffs;
    std::string layers;
    for (const std::string& tar : tars) {
      const std::string packed = test::gzip(tar);
      const std::string& promised = diff_of.empty() ? tar : diff_of;
      diffs += (diffs.empty() ? "\"" : ",\"") + Digest::of(as_bytes(promised)).text() + "\"";
      layers +=
          (layers.empty() ? "" : ",") +
          fmt::format(
              R"({{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"{}","size":{}}})",
              blob(packed), packed.size());
    }
    const std::string config =
        R"({"architecture":")" + architecture +
        R"(","os":"linux","config":{"Cmd":["/bin/tool"],"Env":["A=1"],"User":"app"},"rootfs":{"type":"layers","diff_ids":[)" +
        diffs + "]}}";
    const std::string manifest = fmt::format(
        R"({{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{}]}})",
        blob(config), config.size(), layers);
    id_ = Digest::of(as_bytes(config)).text();
    write(
        "index.json",
        fmt::format(
            R"({{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{}","size":{}}}]}})",
            blob(manifest), manifest.size()));
  }
  ImageStore store() {
    auto opened = ImageStore::open(*home_);
    return std::move(*opened);
  }
  std::string reference() const { return "oci:" + layout_; }
  std::vector<std::string> left() const {
    std::vector<std::string> out;
    for (const char* part : {"refs", "disks", "tmp"})
      for (const auto& entry : fs::directory_iterator(home_->root() + "/images/" + part))
        out.push_back(entry.path());
    return out;
  }

  NoProgress progress_;
  std::string folder_;
  std::string layout_;
  std::string id_;
  std::optional<Home> home_;
};

TEST_F(Store, AnImageIsFetchedOnceAndThenFoundWithoutItsSource) {
  make_image({TarBuilder().file("bin/tool", "v1").finish()});
  auto images = store();
  const auto first = images.ensure(reference(), progress_);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->id, id_);
  EXPECT_EQ(first->config.cmd, std::vector<std::string>{"/bin/tool"});
  EXPECT_EQ(first->config.user, "app");
  const auto content = run_program({"debugfs", "-R", "cat /bin/tool", first->disk_path});
  ASSERT_TRUE(content);
  EXPECT_EQ(content->out, "v1");
  fs::remove_all(layout_ + "/blobs");
  const auto again = images.ensure(reference(), progress_);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->disk_path, first->disk_path);
  EXPECT_EQ(again->config.env, std::vector<std::string>{"A=1"});
}

TEST_F(Store, PullTakesTheNewerImageAndDropsTheOldDisk) {
  make_image({TarBuilder().file("x", "1").finish()});
  auto images = store();
  const auto old = images.ensure(reference(), progress_);
  ASSERT_TRUE(old) << old.error().message;
  const auto same = images.pull(reference(), progress_);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->created_ns, old->created_ns) << "the same image was made again";
  make_image({TarBuilder().file("x", "2").finish()});
  const auto fresh = images.pull(reference(), progress_);
  ASSERT_TRUE(fresh) << fresh.error().message;
  EXPECT_NE(fresh->id, old->id);
  EXPECT_FALSE(fs::exists(old->disk_path));
  EXPECT_EQ(images.list()->size(), 1U);
}

TEST_F(Store, RemovingWaitsForNobodyAndRefusesWhatIsInUse) {
  make_image({TarBuilder().file("x", "1").finish()});
  auto images = store();
  const auto image = images.ensure(reference(), progress_);
  ASSERT_TRUE(image) << image.error().message;
  {
    const auto user = ImageStore::open_base(*image);
    ASSERT_TRUE(user);
    const auto refused = images.remove(reference());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kExists);
    EXPECT_EQ(images.list()->size(), 1U);
  }
  const auto removed = images.remove(image->id.substr(7, 12));
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_GT(*removed, 0U);
  EXPECT_TRUE(left().empty());
  EXPECT_EQ(images.remove(reference()).error().code, Code::kNotFound);
  EXPECT_EQ(ImageStore::open_base(*image).error().code, Code::kNotFound);
}

TEST_F(Store, AWrongDiffIdNamesTheLayerAndLeavesNothing) {
  make_image({TarBuilder().file("x", "1").finish()}, "something else");
  const auto image = store().ensure(reference(), progress_);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, Code::kTampered);
  EXPECT_THAT(image.error().message, HasSubstr("layer 1 of 1"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Store, AHostileLayerLeavesNothing) {
  make_image({TarBuilder().file("ok", "1").finish(),
              TarBuilder().hardlink("x", "../../etc/shadow").finish()});
  const auto image = store().ensure(reference(), progress_);
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, Code::kInvalid);
  EXPECT_THAT(image.error().message, HasSubstr("layer 2 of 2"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Store, ADamagedBlobLeavesNothing) {
  const std::string tar = TarBuilder().file("x", std::string(100'000, 'x')).finish();
  make_image({tar});
  const std::string name = "blobs/sha256/" + Digest::of(as_bytes(test::gzip(tar))).hex();
  write(name, test::gzip(tar).substr(0, 50));
  const auto image = store().ensure(reference(), progress_);
  ASSERT_FALSE(image);
  EXPECT_TRUE(left().empty());
}

TEST_F(Store, AnImageForAnotherMachineIsRefused) {
  make_image({TarBuilder().file("x", "1").finish()}, "", "s390x");
  const auto image = store().ensure(reference(), progress_);
  ASSERT_FALSE(image);
  EXPECT_THAT(image.error().message, HasSubstr("s390x"));
  EXPECT_TRUE(left().empty());
}

TEST_F(Store, WhatAKilledPullLeftIsRemovedByTheNext) {
  (void)store();
  const std::string abandoned = home_->root() + "/images/tmp/dead";
  fs::create_directories(abandoned + "/layout");
  fs::last_write_time(abandoned, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const std::string live = home_->root() + "/images/tmp/live";
  fs::create_directories(live);
  const auto lock = FileLock::try_acquire(live + "/lock");
  ASSERT_TRUE(lock);
  fs::last_write_time(live, fs::file_time_type::clock::now() - std::chrono::hours(1));
  const std::string refs = home_->root() + "/images/refs/";
  std::ofstream(refs + "dead.json.lock").close();
  const auto pulling = FileLock::try_acquire(refs + "live.json.lock");
  ASSERT_TRUE(pulling);
  (void)store();
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(live));
  EXPECT_FALSE(fs::exists(refs + "dead.json.lock"));
  EXPECT_TRUE(fs::exists(refs + "live.json.lock"));
}

// Each of them deletes the lock that the next is waiting for.
TEST_F(Store, OfManyWhoWantTheSameImageOneMakesIt) {
  make_image({TarBuilder().file("x", std::string(3'000'000, 'x')).finish()});
  std::vector<int64_t> made(4);
  std::vector<std::thread> processes;
  for (auto& when : made)
    processes.emplace_back([&, mine = store()]() mutable {
      NoProgress quiet;
      const auto image = mine.ensure(reference(), quiet);
      if (image) when = image->created_ns;
    });
  for (std::thread& process : processes) process.join();
  EXPECT_GT(made.front(), 0);
  EXPECT_THAT(made, testing::Each(made.front()));
  EXPECT_EQ(left().size(), 2U) << "one record and one disk, no lock";
}

TEST_F(Store, ADamagedRecordIsAMissingImage) {
  make_image({TarBuilder().file("x", "1").finish()});
  auto images = store();
  ASSERT_TRUE(images.ensure(reference(), progress_));
  for (const auto& entry : fs::directory_iterator(home_->root() + "/images/refs"))
    if (entry.path().extension() == ".json")
      std::ofstream(entry.path()) << "{\"id\":\"sha256:../../x\"}";
  EXPECT_TRUE(images.list()->empty());
  EXPECT_TRUE(images.ensure(reference(), progress_)) << "it is fetched again";
}

TEST(SkopeoFailure, IsExplained) {
  const Error missing = explain_skopeo_failure(
      "x", R"(time="t" level=fatal msg="reading manifest a in \"b\": manifest unknown")");
  EXPECT_EQ(missing.code, Code::kNotFound);
  EXPECT_EQ(missing.message, "pulling x: reading manifest a in \"b\": manifest unknown");
  EXPECT_FALSE(missing.hint.empty());
  EXPECT_EQ(explain_skopeo_failure("x", R"(msg="unauthorized: authentication required")").code,
            Code::kPermission);
  EXPECT_EQ(explain_skopeo_failure("x", R"(msg="dial tcp: lookup h: no such host")").code,
            Code::kUnavailable);
  EXPECT_EQ(explain_skopeo_failure("x", "odd").code, Code::kIo);
}

}  // namespace
}  // namespace sandbox
