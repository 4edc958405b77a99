#include "cli/share_args.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "files/share.h"

namespace sandbox::cli {

namespace {

// Guest paths that would hide what the guest needs to run at all.
constexpr std::string_view kReserved[] = {"/",     "/proc", "/sys",   "/dev", "/run", "/bin",
                                          "/sbin", "/lib",  "/lib64", "/usr", "/etc", "/boot"};

std::string home_directory() {
  const char* home = std::getenv("HOME");
  return home == nullptr ? "" : home;
}

Status check_guest_path(const std::string& path) {
  const auto invalid = [&](std::string_view why) {
    return fail(
        Error{Code::kInvalid, fmt::format("'{}': {}", path, why), "example: -m ./data:/data:ro"});
  };
  if (path.empty() || path[0] != '/') return invalid("the path in the guest must be absolute");
  if (path.size() > 4000) return invalid("the path in the guest is too long");
  if (std::filesystem::path(path).lexically_normal().string() != path ||
      (path.size() > 1 && path.back() == '/'))
    return invalid("the path in the guest must be plain: no '..', no doubled or trailing '/'");
  if (std::find(std::begin(kReserved), std::end(kReserved), path) != std::end(kReserved))
    return invalid("this directory of the guest cannot be covered");
  return {};
}

Status check_text(const std::string& path) {
  if (escape_terminal(path) == path) return {};
  return fail(Code::kInvalid, "'{}': only paths of printable UTF-8 can be shared",
              escape_terminal(path));
}

Result<ShareSpec> make_share(const Home& home, const std::string& host, const std::string& guest,
                             bool read_only) {
  TRY(check_text(host));
  TRY(check_guest_path(guest));
  ASSIGN(const files::SharePath path, files::check_share_path(host, home_directory(), home.root()));
  TRY(check_text(path.path));
  return ShareSpec{path.path, guest, read_only, !path.is_directory};
}

Result<ShareSpec> parse_mount(const Home& home, const std::string& word) {
  const auto parts = split(word, ':');
  const auto invalid = [&](std::string_view why) {
    return fail(Error{Code::kInvalid, fmt::format("-m {}: {}", word, why),
                      "the form is HOST:GUEST or HOST:GUEST:ro"});
  };
  if (parts.size() < 2 || parts.size() > 3 || parts[0].empty())
    return invalid("not HOST:GUEST[:ro]");
  bool read_only = false;
  if (parts.size() == 3) {
    if (parts[2] == "copy" || parts[2] == "state")
      return invalid("copies and states are not available in this version");
    if (parts[2] != "ro" && parts[2] != "rw")
      return invalid(fmt::format("unknown mode '{}'", parts[2]));
    read_only = parts[2] == "ro";
  }
  return make_share(home, std::string(parts[0]), std::string(parts[1]), read_only);
}

// Adds what git needs when the directory is a linked worktree.
Status add_git_directory(const Home& home, const std::string& workspace, Shares& shares) {
  const auto git = files::git_directory_outside(workspace);
  if (!git) return {};
  ASSIGN(ShareSpec share, make_share(home, *git, *git, false));
  shares.notes.push_back(
      fmt::format("{} is a git worktree; its repository {} is shared too", workspace, *git));
  shares.list.push_back(std::move(share));
  return {};
}

Status add_workspace(const Home& home, const std::optional<std::string>& wanted, Shares& shares) {
  if (wanted) {
    ASSIGN(ShareSpec share, make_share(home, *wanted, "/workspace", false));
    if (share.single_file)
      return fail(Error{Code::kInvalid, fmt::format("-w {}: a workspace is a directory", *wanted),
                        fmt::format("share a file with: -m {}:/path/in/guest", *wanted)});
    shares.workspace = "/workspace";
    shares.list.push_back(share);
    return add_git_directory(home, share.host_path, shares);
  }
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (error) return fail(Code::kIo, "the working directory: {}", error.message());
  auto share = make_share(home, here, here, false);
  if (!share) {
    shares.notes.push_back(fmt::format("no workspace is shared: {}", share.error().message));
    return {};
  }
  // The path as it is without symlinks is the one that both sides agree on.
  share->guest_path = share->host_path;
  if (!check_guest_path(share->guest_path)) {
    shares.notes.push_back(
        fmt::format("no workspace is shared: {} cannot be covered in the guest", here));
    return {};
  }
  shares.workspace = share->guest_path;
  shares.list.push_back(*share);
  return add_git_directory(home, share->host_path, shares);
}

}  // namespace

Result<Shares> plan_shares(const Home& home, const std::optional<std::string>& workspace,
                           const std::vector<std::string>& mounts) {
  Shares shares;
  TRY(add_workspace(home, workspace, shares));
  for (const std::string& word : mounts) {
    ASSIGN(ShareSpec share, parse_mount(home, word));
    for (const ShareSpec& other : shares.list)
      if (other.guest_path == share.guest_path)
        return fail(Code::kInvalid, "two shares at {} in the guest", share.guest_path);
    shares.list.push_back(std::move(share));
  }
  // Outer mount points first, so that an inner one is not covered.
  std::stable_sort(shares.list.begin(), shares.list.end(),
                   [](const ShareSpec& a, const ShareSpec& b) {
                     return a.guest_path.size() < b.guest_path.size();
                   });
  return shares;
}

}  // namespace sandbox::cli
