#include "files/share.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace sandbox::files {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxGitFile = 8192;

// Absolute, symlinks resolved as far as the path exists, without a trailing slash.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path out = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) out = fs::absolute(path, error).lexically_normal();
  if (!out.has_filename() && out.has_relative_path()) out = out.parent_path();
  return out;
}

bool is_in_or_same(const fs::path& path, const fs::path& directory) {
  auto at = path.begin();
  for (const fs::path& part : directory) {
    if (at == path.end() || *at != part) return false;
    ++at;
  }
  return true;
}

tl::unexpected<Error> refused(const fs::path& path, std::string_view why, std::string_view hint) {
  return fail(Error{Code::kInvalid, fmt::format("{} cannot be shared: {}", path.string(), why),
                    std::string(hint)});
}

Status check_place(const fs::path& path, const fs::path& home, const fs::path& state) {
  constexpr std::string_view kHint = "share the project's own directory";
  if (path == "/") return refused(path, "it is the whole machine", kHint);
  if (path == home)
    return refused(path, "it is the home directory, with its keys and shell files", kHint);
  if (is_in_or_same(home, path)) return refused(path, "the home directory is in it", kHint);
  if (is_in_or_same(path, state)) return refused(path, "it is the sandbox's own state", kHint);
  if (is_in_or_same(state, path)) return refused(path, "the sandbox's own state is in it", kHint);
  for (const char* kernel : {"/proc", "/sys", "/dev"})
    if (is_in_or_same(path, kernel)) return refused(path, "it belongs to the kernel", kHint);
  return {};
}

// "gitdir: PATH\n", PATH relative to the directory of the file.
std::optional<fs::path> read_git_file(const fs::path& file) {
  const auto content = read_file(file.string(), kMaxGitFile);
  constexpr std::string_view kPrefix = "gitdir:";
  if (!content || !content->starts_with(kPrefix)) return std::nullopt;
  const std::string_view path = trim(std::string_view(*content).substr(kPrefix.size()));
  if (path.empty()) return std::nullopt;
  return real_path(file.parent_path() / path);
}

// A worktree's directory names the one that it has in common with the main checkout.
fs::path common_directory(const fs::path& git_dir) {
  const auto content = read_file((git_dir / "commondir").string(), kMaxGitFile);
  if (!content || trim(*content).empty()) return git_dir;
  return real_path(git_dir / std::string(trim(*content)));
}

}  // namespace

Result<SharePath> check_share_path(const std::string& path, const std::string& home,
                                   const std::string& state_dir) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return fail(Code::kInvalid, "a share needs a path");
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) {
    const bool absent =
        error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return fail(absent ? Code::kNotFound : Code::kPermission, "{}: {}", path, error.message());
  }
  TRY(check_place(real, real_path(home), real_path(state_dir)));
  struct stat st {};
  if (::stat(real.c_str(), &st) < 0) return fail_errno(errno, real.string());
  if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
    return refused(real, "it is neither a directory nor a regular file", "");
  return SharePath{real.string(), S_ISDIR(st.st_mode)};
}

std::optional<std::string> git_directory_outside(const std::string& share) {
  const fs::path root = real_path(share);
  struct stat st {};
  if (::lstat((root / ".git").c_str(), &st) < 0 || !S_ISREG(st.st_mode)) return std::nullopt;
  const auto git_dir = read_git_file(root / ".git");
  if (!git_dir) return std::nullopt;
  const fs::path common = common_directory(*git_dir);
  std::error_code error;
  if (is_in_or_same(common, root) || !fs::is_directory(common, error)) return std::nullopt;
  return common.string();
}

}  // namespace sandbox::files
