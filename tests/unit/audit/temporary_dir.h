#pragma once
// A directory that is gone when the test is.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/fd.h"
#include "base/file.h"

namespace sandbox::audit::test {

class TemporaryDir {
 public:
  TemporaryDir() {
    std::string pattern = ::testing::TempDir() + "audit-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDir() { EXPECT_TRUE(remove_tree(path_)); }
  TemporaryDir(const TemporaryDir&) = delete;
  TemporaryDir& operator=(const TemporaryDir&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace sandbox::audit::test
