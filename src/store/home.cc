#include "store/home.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace sandbox {

Result<Home> Home::open() {
  if (const char* set = std::getenv("SANDBOX_HOME"); set != nullptr && *set != '\0')
    return open_at(std::filesystem::absolute(set).lexically_normal().string());
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') {
    const passwd* entry = ::getpwuid(::getuid());
    home = entry == nullptr ? nullptr : entry->pw_dir;
  }
  if (home == nullptr || *home != '/')
    return fail(Error{Code::kNotFound, "neither HOME nor the user database names a home directory",
                      "set SANDBOX_HOME to a directory of your own"});
  return open_at(std::string(home) + "/.sandbox");
}

Result<Home> Home::open_at(const std::string& root) {
  TRY(make_private_dir(root));
  struct stat st {};
  if (::stat(root.c_str(), &st) < 0) return fail_errno(errno, root);
  if (st.st_uid != ::geteuid())
    return fail(Error{
        Code::kPermission,
        fmt::format("{} belongs to uid {}, not to you (uid {})", root, st.st_uid, ::geteuid()),
        "set SANDBOX_HOME to a directory of your own"});
  if ((st.st_mode & 077) != 0 && ::chmod(root.c_str(), 0700) < 0)
    return fail_errno(errno, fmt::format("chmod 0700 {}", root));
  return Home(root);
}

Result<std::string> Home::folder(std::string_view name) const {
  std::string path = fmt::format("{}/{}", root_, name);
  TRY(make_private_dir(path));
  return path;
}

Result<std::string> Home::run_dir(std::string_view name) const {
  TRY(check_sandbox_name(name));
  ASSIGN(const std::string runs, runs_dir());
  return fmt::format("{}/{}", runs, name);
}

Status check_sandbox_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 63)
    return fail(Code::kInvalid, "a sandbox name has 1 to 63 characters");
  if (!letter(name[0]))
    return fail(Code::kInvalid, "sandbox name '{}': it must start with a-z or 0-9", name);
  for (const char c : name)
    if (!letter(c) && c != '-' && c != '_' && c != '.')
      return fail(Code::kInvalid, "sandbox name '{}': only a-z 0-9 - _ . are allowed", name);
  return {};
}

}  // namespace sandbox
