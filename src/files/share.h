#pragma once
// What may be shared, decided before anything is opened. Used by the command line; the process
// sandbox-files trusts the configuration it is given.

#include <optional>
#include <string>

#include "base/result.h"

namespace sandbox::files {

struct SharePath {
  std::string path;  // absolute, without symlinks: what is really shared
  bool is_directory = false;
};

// Resolves `path` (relative to the working directory, symlinks followed) and refuses what nobody
// means to hand to a guest:
// `/`, the home directory itself or anything above it, the sandbox's own state directory, anything
// in it or above it, the kernel's file systems (/proc, /sys, /dev), and what is neither a directory
// nor a regular file. `home` and `state_dir` need not exist. Errors: kNotFound, kInvalid (with a
// hint).
Result<SharePath> check_share_path(const std::string& path, const std::string& home,
                                   const std::string& state_dir);

// A git worktree or submodule keeps its repository elsewhere: `<share>/.git` is a file that names
// it. Returns the directory that must be shared too, at the same path, for git to work inside;
// nullopt where the share needs nothing more. For a worktree this is the common directory (the
// `.git` of the main checkout), which holds the objects.
std::optional<std::string> git_directory_outside(const std::string& share);

}  // namespace sandbox::files
