#pragma once
// The built-in image: a small Debian (or Ubuntu) root, made by mmdebstrap from the package sources
// this machine itself uses, for machines with no registry in reach. Inside: uid 1000 "agent" with
// passwordless sudo, C.UTF-8, and the programs of builtin_packages().

#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "image/image.h"

namespace sandbox {

// What the image is made from; another value means another image.
Result<std::string> builtin_recipe();
const std::vector<std::string>& builtin_packages();
ImageConfig builtin_config();

// Writes the root as a tar file at `tar_path`. Needs no root: user namespaces with the sub-ids of
// the user, else fakechroot.
Status make_builtin_root(const std::string& tar_path, Progress& progress);

// A shell command that removes user names and passwords from the addresses in the apt settings
// below the folder "$1"; separate for its tests.
extern const std::string_view kRemoveCredentials;

}  // namespace sandbox
