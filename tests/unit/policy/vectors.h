#pragma once
// Loading the shared vectors of tests/data.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sandbox::policy::test {

inline nlohmann::json load_vectors(const std::string& file) {
  std::ifstream stream(std::string(SANDBOX_TEST_DATA "/") + file);
  EXPECT_TRUE(stream.good()) << file << " is missing from tests/data";
  return nlohmann::json::parse(stream);
}

inline std::vector<std::string> strings(const nlohmann::json& object, const char* key) {
  return object.value(key, std::vector<std::string>{});
}

}  // namespace sandbox::policy::test
