#pragma once
// Where things are on disk: $SANDBOX_HOME, else ~/.sandbox. Every folder is created 0700 on first
// use.
//
//   kernel/     unpacked guest kernels        images/  OCI blobs and disks       boot/  boot states
//   run/NAME/   one sandbox: record.json, lock, console.log, audit/, disk.qcow2 while it runs

#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbox {

class Home {
 public:
  static Result<Home> open();  // from the environment; creates the root
  static Result<Home> open_at(const std::string& root);

  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] Result<std::string> kernel_dir() const { return folder("kernel"); }
  [[nodiscard]] Result<std::string> images_dir() const { return folder("images"); }
  [[nodiscard]] Result<std::string> boot_dir() const { return folder("boot"); }
  [[nodiscard]] Result<std::string> runs_dir() const { return folder("run"); }
  [[nodiscard]] Result<std::string> run_dir(std::string_view name) const;  // not created

 private:
  explicit Home(std::string root) : root_(std::move(root)) {}
  [[nodiscard]] Result<std::string> folder(std::string_view name) const;
  std::string root_;
};

// 1 to 63 of a-z 0-9 - _ ., starting with a letter or digit.
Status check_sandbox_name(std::string_view name);

}  // namespace sandbox
