#pragma once
// The host's certificate authorities in the guest (run --trust-host-ca).

#include <string_view>

#include "base/result.h"
#include "guest/root_dir.h"

namespace sandbox::guest {

// `roots`: PEM. They are written whole to channel::kHostRootsPath, which variables point programs
// to that bring their own bundle, and those that are missing are appended to every bundle of the
// image. An image without a bundle gets one where most programs look.
Status trust(const RootDir& root, std::string_view roots);

}  // namespace sandbox::guest
