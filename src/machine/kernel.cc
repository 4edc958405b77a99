#include "machine/kernel.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "machine/disk.h"
#include "machine/kernel_package.h"
#include "machine/known_digests.h"

namespace sandbox {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kSeries = "linux-image-6.12";
// Metapackages, in order of preference; the second is the same series under Debian 13's name.
constexpr const char* kMetapackages[] = {"linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"};
constexpr uint64_t kSpaceNeeded = uint64_t{300} << 20;
constexpr const char* kInstallHint = "sandbox kernel install";
constexpr const char* kFromHint =
    "on another machine: apt-get download linux-image-6.12…-cloud-amd64; then here: sandbox kernel "
    "install --from FILE.deb";

std::string record_text(const Kernel& kernel) {
  Json modules = Json::array();
  for (const auto& module : kernel.modules)
    modules.push_back({{"file", module.file}, {"sha256", module.sha256}});
  return Json{{"version", kernel.version},
              {"package", kernel.package},
              {"sha256", kernel.sha256},
              {"modules", modules}}
             .dump(2) +
         "\n";
}

Result<Kernel> read_record(const std::string& folder) {
  ASSIGN(const std::string text, read_file(folder + "/record.json", 1 << 20));
  try {
    const Json json = Json::parse(text);
    Kernel kernel;
    kernel.version = json.at("version");
    kernel.package = json.at("package");
    kernel.sha256 = json.at("sha256");
    kernel.vmlinux = folder + "/vmlinux";
    for (const Json& entry : json.at("modules")) {
      const std::string file = entry.at("file");
      if (file.find('/') != std::string::npos)
        return fail(Code::kInvalid, "{}/record.json names a module outside its folder", folder);
      kernel.modules.push_back(
          {file, fmt::format("{}/modules/{}", folder, file), entry.at("sha256")});
    }
    return kernel;
  } catch (const Json::exception& e) {
    return fail(Code::kInvalid, "{}/record.json is damaged: {}", folder, e.what());
  }
}

Status verify(const Kernel& kernel, KnownDigests& known) {
  const auto check = [&](const std::string& path, const std::string& promised) -> Status {
    ASSIGN(const std::string found, known.of(path));
    if (found == promised) return {};
    return fail(Error{Code::kTampered, fmt::format("{} differs from what was installed", path),
                      kInstallHint});
  };
  TRY(check(kernel.vmlinux, kernel.sha256));
  for (const auto& module : kernel.modules) TRY(check(module.path, module.sha256));
  return {};
}

// Runs one of apt's tools. With `state`, its indexes are kept there instead of in the system's, so
// that an ordinary user can refresh them; sources and keys stay the machine's.
Result<Output> apt(const std::string& program, const std::string& state,
                   const std::vector<std::string>& words, const std::string& cwd = {}) {
  const auto path = find_in_path(program);
  if (!path) return fail(Error{Code::kUnavailable, "this machine has no apt", kFromHint});
  std::vector<std::string> argv;
  if (!cwd.empty()) argv = {"env", "--chdir=" + cwd};
  argv.push_back(*path);
  if (::geteuid() == 0) argv.insert(argv.end(), {"-o", "APT::Sandbox::User=root"});
  if (!state.empty())
    argv.insert(argv.end(), {"-o", "Dir::State::lists=" + state + "/lists", "-o",
                             "Dir::Cache=" + state + "/cache"});
  argv.insert(argv.end(), words.begin(), words.end());
  return run_program(argv);
}

// The package a metapackage depends on now: "  Depends: linux-image-6.12.117+deb12-cloud-amd64".
Result<std::string> resolve(const std::string& state) {
  for (const char* meta : kMetapackages) {
    ASSIGN(const Output output, apt("apt-cache", state, {"depends", "--important", meta}));
    for (const std::string_view line : split(output.out, '\n')) {
      const std::string_view words = trim(line);
      constexpr std::string_view kDepends = "Depends: ";
      if (!words.starts_with(kDepends)) continue;
      const std::string_view name = words.substr(kDepends.size());
      if (name.starts_with(kSeries) && name.ends_with("cloud-amd64")) return std::string(name);
    }
  }
  return fail(Code::kNotFound,
              "apt knows no kernel of the series 6.12 (linux-image-6.12-cloud-amd64)");
}

struct Download {
  std::string deb;
  std::string package;
};

Result<std::string> only_deb(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".deb") return entry.path().string();
  return fail(Code::kIo, "apt-get reported success and left no package in {}", folder);
}

Result<Download> download_with(const std::string& state, const std::string& folder,
                               Progress& progress) {
  ASSIGN(const std::string package, resolve(state));
  progress.step(fmt::format("downloading {}", package));
  ASSIGN(const Output output, apt("apt-get", state, {"-q", "download", package}, folder));
  if (output.exit_code != 0)
    return fail(Code::kUnavailable, "apt-get could not download {}: {}", package, trim(output.err));
  ASSIGN(std::string deb, only_deb(folder));
  return Download{std::move(deb), package};
}

// First with the system's indexes; when they are missing or too old to be downloaded from, with
// fresh ones of our own.
Result<Download> download(const std::string& folder, Progress& progress) {
  progress.step("looking for the guest kernel with apt");
  auto first = download_with("", folder, progress);
  if (first || !find_in_path("apt-get")) return first;
  const std::string state = folder + "/apt";
  TRY(make_private_dir(state + "/lists/partial"));
  TRY(make_private_dir(state + "/cache/archives/partial"));
  progress.step("refreshing apt's package lists in a private folder");
  ASSIGN(const Output update, apt("apt-get", state, {"-q", "update"}));
  auto second = download_with(state, folder, progress);
  if (second) return second;
  Error error = std::move(second.error());
  if (update.exit_code != 0) error.message += fmt::format("; apt-get update: {}", trim(update.err));
  error.hint = fmt::format(
      "enable the distribution's security updates (Debian 12 has it there) in /etc/apt and run "
      "apt-get "
      "update; or {}",
      kFromHint);
  return fail(std::move(error));
}

Status write_kernel(const std::string& folder, const UnpackedKernel& unpacked, Kernel& kernel) {
  TRY(make_private_dir(folder + "/modules"));
  kernel.vmlinux = folder + "/vmlinux";
  kernel.sha256 = sha256_hex(unpacked.vmlinux);
  TRY(write_file_atomic(kernel.vmlinux, as_text(unpacked.vmlinux)));
  for (const auto& module : unpacked.modules) {
    const std::string path = folder + "/modules/" + module.file;
    TRY(write_file_atomic(path, as_text(module.content)));
    kernel.modules.push_back({module.file, path, sha256_hex(module.content)});
  }
  return write_file_atomic(folder + "/record.json", record_text(kernel));
}

Status install_unpacked(const std::string& root, const std::string& work,
                        const UnpackedKernel& unpacked, const std::string& package) {
  // The version becomes a folder name.
  const auto harmless = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("+-._~").find(c) != std::string_view::npos;
  };
  if (unpacked.version.empty() || unpacked.version[0] == '.' ||
      !std::all_of(unpacked.version.begin(), unpacked.version.end(), harmless))
    return fail(Code::kInvalid, "a kernel of the strange version '{}'", unpacked.version);
  Kernel kernel;
  kernel.version = unpacked.version;
  kernel.package = package;
  const std::string fresh = work + "/new";
  TRY(write_kernel(fresh, unpacked, kernel));
  const std::string target = root + "/" + unpacked.version;
  TRY(remove_tree(target));
  if (::rename(fresh.c_str(), target.c_str()) < 0)
    return fail_errno(errno, fmt::format("rename to {}", target));
  return write_file_atomic(root + "/current", unpacked.version + "\n");
}

Status install_into(const std::string& root, const std::string& work, Progress& progress,
                    const std::optional<std::string>& deb) {
  Download source;
  if (deb) {
    if (!fs::exists(*deb)) return fail(Code::kNotFound, "{}: no such file", *deb);
    source = {*deb, fs::path(*deb).filename().string()};
  } else {
    ASSIGN(source, download(work, progress));
    source.package = fs::path(source.deb).filename().string();
  }
  progress.step("unpacking the kernel");
  ASSIGN(const UnpackedKernel unpacked, unpack_kernel_package(source.deb, kGuestModules, progress));
  if (!has_pvh_entry(unpacked.vmlinux))
    return fail(Code::kInvalid, "{} has no PVH entry (CONFIG_PVH)", unpacked.version);
  return install_unpacked(root, work, unpacked, source.package);
}

}  // namespace

Result<Kernel> installed_kernel(const Home& home) {
  ASSIGN(const std::string root, home.kernel_dir());
  const auto current = read_file(root + "/current", 4096);
  if (!current) return fail(Error{Code::kNotFound, "no guest kernel is installed", kInstallHint});
  auto kernel = read_record(fmt::format("{}/{}", root, trim(*current)));
  if (!kernel) {
    kernel.error().hint = kInstallHint;
    return kernel;
  }
  KnownDigests known = KnownDigests::load(root + "/known-digests");
  TRY(verify(*kernel, known));
  TRY(known.save());
  return kernel;
}

std::vector<Kernel> installed_kernels(const Home& home) {
  std::vector<Kernel> kernels;
  const auto root = home.kernel_dir();
  if (!root) return kernels;
  std::vector<std::pair<fs::file_time_type, std::string>> folders;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(*root, error))
    if (entry.is_directory(error)) folders.emplace_back(entry.last_write_time(error), entry.path());
  std::sort(folders.begin(), folders.end());
  for (const auto& [time, folder] : folders)
    if (auto kernel = read_record(folder)) kernels.push_back(std::move(*kernel));
  return kernels;
}

Result<Kernel> install_kernel(const Home& home, Progress& progress,
                              const std::optional<std::string>& deb) {
  ASSIGN(const std::string root, home.kernel_dir());
  ASSIGN(const FileLock lock, FileLock::acquire(root + "/lock"));
  TRY(require_free_space(root, kSpaceNeeded, "the guest kernel"));
  const std::string work = root + "/.install";
  TRY(remove_tree(work));
  TRY(make_private_dir(work));
  Status status = install_into(root, work, progress, deb);
  TRY(remove_tree(work));
  if (!status) return fail(std::move(status.error()));
  return installed_kernel(home);
}

}  // namespace sandbox
