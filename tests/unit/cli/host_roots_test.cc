#include "cli/host_roots.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace sandbox::cli {
namespace {

const std::string kA = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n";
const std::string kB = "-----BEGIN CERTIFICATE-----\nQkJC\n-----END CERTIFICATE-----\n";
const std::string kC = "-----BEGIN CERTIFICATE-----\nQ0ND\n-----END CERTIFICATE-----\n";

std::map<std::string, std::string>& variables() {
  static std::map<std::string, std::string> all;
  return all;
}
const char* outside(const char* name) {
  const auto it = variables().find(name);
  return it == variables().end() ? nullptr : it->second.c_str();
}

class HostRootsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/host_roots_test.XXXXXX";
    dir_ = ::mkdtemp(name);
    variables().clear();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string file(const std::string& name, const std::string& content) {
    const std::string path = dir_ / name;
    std::ofstream(path) << content;
    return path;
  }
  std::filesystem::path dir_;
};

TEST_F(HostRootsTest, TheFirstBundleAndWhatTheShellNamesEachOnce) {
  const std::string bundle = file("bundle", "# public\n" + kA + kB);
  const std::string other = file("other", kC);
  EXPECT_EQ(*host_roots({dir_ / "none", bundle, other}, outside), kA + kB);
  variables() = {{"SSL_CERT_FILE", file("company", kB + kC)}, {"NODE_EXTRA_CA_CERTS", ""}};
  EXPECT_EQ(*host_roots({bundle}, outside), kA + kB + kC);
  EXPECT_EQ(*host_roots({}, outside), kB + kC);
}

TEST_F(HostRootsTest, AMistakeIsNamed) {
  EXPECT_NE(host_roots({}, outside).error().message.find("no certificates to trust"),
            std::string::npos);
  EXPECT_FALSE(host_roots({file("empty", "no block")}, outside));
  variables() = {{"NODE_EXTRA_CA_CERTS", "/nonexistent/ca.pem"}};
  const auto missing = host_roots({file("bundle", kA)}, outside);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("/nonexistent/ca.pem (NODE_EXTRA_CA_CERTS)"),
            std::string::npos)
      << missing.error().message;
}

TEST_F(HostRootsTest, WhatDoesNotFitTheOrdersIsAnError) {
  std::string many;
  for (int i = 0; i < 3000; ++i)
    many += "-----BEGIN CERTIFICATE-----\n" + std::string(400, 'A') + std::to_string(1000 + i) +
            "\n-----END CERTIFICATE-----\n";
  const auto roots = host_roots({file("many", many)}, outside);
  ASSERT_FALSE(roots);
  EXPECT_NE(roots.error().message.find("3000 certificates"), std::string::npos);
}

}  // namespace
}  // namespace sandbox::cli
