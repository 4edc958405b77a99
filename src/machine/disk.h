#pragma once
// Disks of a sandbox. Every disk has the same virtual size (kDiskBytes), because a boot state fixes
// it; what a file system may use of that is its own business. An overlay is a qcow2 version 3 file
// whose backing is given by descriptor when QEMU starts, so no path inside the file is ever
// followed.

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

// The first 256 KiB of an empty qcow2 of `virtual_bytes`: header, reference counts, empty
// first-level table. Clusters of 64 KiB; virtual_bytes a multiple of 512 and at most 4 TiB.
Bytes empty_qcow2(uint64_t virtual_bytes);

// Creates PATH (0600, must not exist) as an empty overlay and returns it open for reading and
// writing.
Result<Fd> create_overlay(const std::string& path);
// A fresh open file description of an existing overlay: QEMU's locks belong to the description, so
// each QEMU needs its own.
Result<Fd> open_overlay(const std::string& path);
// A raw image for reading; fails unless it is a regular file of kDiskBytes.
Result<Fd> open_base(const std::string& path);

// kLimit with a hint when fewer than `bytes` are free for the user where `path` lives.
Status require_free_space(const std::string& path, uint64_t bytes, std::string_view what_for);

}  // namespace sandbox
