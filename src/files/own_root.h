#pragma once
// A root of the file server's own, in which there is nothing but the shares.
//
// Landlock keeps an intruder from opening what is not shared, but has no say in calls that name a
// file and do not open it: chmod, utimensat, stat, inotify. So the names themselves go. In a user
// and a mount namespace of its own, the process moves to an empty tmpfs with
//
//   /1, /2, …        the shares, by number: each a mount of its own, so ".." does not leave it
//   /proc/self/fd    its own descriptors, by which tree.cc names files
//
// The user is mapped to himself, so what he may do to a file is what it was. Every other owner is
// seen as 65534 from here on, root too.

#include "files/service.h"

namespace sandbox::files {

// Call before any share is opened. Returns the configuration with the new paths.
Result<Config> enter_own_root(Config config);

}  // namespace sandbox::files
