#include "machine/qemu.h"

#include <climits>
#include <cstdlib>
#include <filesystem>

#include "base/process.h"
#include "base/text.h"

namespace sandbox {

namespace {

constexpr const char* kBinary = "qemu-system-x86_64";

void add_if_present(std::vector<std::string>& binds, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  for (const auto& have : binds)
    if (have == path) return;
  binds.push_back(path);
}

}  // namespace

Result<Qemu> find_qemu() {
  const auto found = find_in_path(kBinary);
  if (!found) {
    return fail(Error{Code::kUnavailable, fmt::format("{} is not installed", kBinary),
                      "sudo apt-get install qemu-system-x86"});
  }
  char real[PATH_MAX];
  if (::realpath(found->c_str(), real) == nullptr) return fail_errno(errno, *found);
  Qemu qemu{real, {}};
  // PREFIX/bin/qemu: its libraries and firmware are below PREFIX, the C library wherever the system
  // keeps it.
  const std::filesystem::path prefix = std::filesystem::path(real).parent_path().parent_path();
  add_if_present(qemu.binds, qemu.binary);
  for (const char* folder : {"lib", "lib64", "share/qemu", "share/seabios"})
    add_if_present(qemu.binds, (prefix / folder).string());
  for (const char* folder :
       {"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null"})
    add_if_present(qemu.binds, folder);
  return qemu;
}

Result<std::string> qemu_version(const Qemu& qemu) {
  ASSIGN(const Output output, run_program({qemu.binary, "--version"}, 65536));
  if (output.exit_code != 0)
    return fail(Code::kUnavailable, "{} --version failed: {}", qemu.binary, trim(output.err));
  return std::string(trim(split(output.out, '\n')[0]));
}

}  // namespace sandbox
