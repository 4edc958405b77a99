#include "guest/trust.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "channel/messages.h"

namespace sandbox::guest {
namespace {

namespace fs = std::filesystem;

const std::string kA = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n";
const std::string kB = "-----BEGIN CERTIFICATE-----\nQkJC\n-----END CERTIFICATE-----\n";

// An image in a directory.
class TrustTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/trust_test.XXXXXX";
    base_ = ::mkdtemp(name);
    fs::create_directories(base_ / "root");
    root_ = RootDir(*open_file((base_ / "root").string(), O_PATH | O_DIRECTORY));
  }
  void TearDown() override { fs::remove_all(base_); }

  fs::path at(const std::string& path) { return base_ / ("root" + path); }
  void put(const std::string& path, const std::string& content) {
    fs::create_directories(at(path).parent_path());
    std::ofstream(at(path)) << content;
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories(at(path).parent_path());
    fs::create_symlink(target, at(path));
  }
  std::string content(const std::string& path) { return *read_file(at(path).string()); }

  fs::path base_;
  RootDir root_;
};

TEST_F(TrustTest, DebianHasOneBundleAndAnOpenSslThatLooksElsewhere) {
  put("/etc/ssl/certs/ca-certificates.crt", "# public\n" + kA);
  fs::create_directories(at("/usr/lib/ssl"));
  ASSERT_TRUE(trust(root_, kA + kB));
  EXPECT_EQ(content("/etc/ssl/certs/ca-certificates.crt"), "# public\n" + kA + kB);
  EXPECT_EQ(fs::read_symlink(at("/usr/lib/ssl/cert.pem")), "/etc/ssl/certs/ca-certificates.crt");
  EXPECT_EQ(content(channel::kHostRootsPath), kA + kB);
}

TEST_F(TrustTest, AlpineHasALink) {
  put("/etc/ssl/certs/ca-certificates.crt", kA);
  link("/etc/ssl/cert.pem", "certs/ca-certificates.crt");
  ASSERT_TRUE(trust(root_, kB));
  EXPECT_EQ(content("/etc/ssl/certs/ca-certificates.crt"), kA + kB);
  EXPECT_TRUE(fs::is_symlink(at("/etc/ssl/cert.pem")));
  EXPECT_FALSE(fs::exists(at("/usr/lib/ssl/cert.pem")));
}

TEST_F(TrustTest, FedoraHasItsBundleElsewhere) {
  put("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", kA);
  link("/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem");
  ASSERT_TRUE(trust(root_, kB));
  EXPECT_EQ(content("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"), kA + kB);
  EXPECT_FALSE(fs::exists(at("/etc/ssl/certs/ca-certificates.crt")));
}

TEST_F(TrustTest, AnImageWithoutABundleGetsOne) {
  ASSERT_TRUE(trust(root_, kA + kB));
  EXPECT_EQ(content("/etc/ssl/certs/ca-certificates.crt"), kA + kB);
}

TEST_F(TrustTest, TwiceIsOnce) {
  put("/etc/ssl/certs/ca-certificates.crt", kA.substr(0, kA.size() - 1));
  ASSERT_TRUE(trust(root_, kB));
  ASSERT_TRUE(trust(root_, kB));
  EXPECT_EQ(content("/etc/ssl/certs/ca-certificates.crt"), kA + kB);
}

TEST_F(TrustTest, AHostileImageLeadsNowhereOutside) {
  std::ofstream(base_ / "outside") << "untouched";
  link("/etc/ssl/certs/ca-certificates.crt", (base_ / "outside").string());
  link("/etc/ssl/cert.pem", "../../../../../../outside");
  fs::create_directories(at("/etc/pki/tls/certs/ca-bundle.crt"));
  (void)trust(root_, kB);
  EXPECT_EQ(*read_file((base_ / "outside").string()), "untouched");
}

}  // namespace
}  // namespace sandbox::guest
