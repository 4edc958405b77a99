#pragma once
// A directory that lives as long as the object, with its real path.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace sandbox::files {

class TempTree {
 public:
  explicit TempTree(const std::filesystem::path& base = std::filesystem::temp_directory_path()) {
    std::string pattern = (base / "files-XXXXXX").string();
    path_ = std::filesystem::canonical(::mkdtemp(pattern.data()));
  }
  ~TempTree() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempTree(const TempTree&) = delete;
  TempTree& operator=(const TempTree&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sandbox::files
