#pragma once
// Layers in, disk out. The work is done in a child process that can do nothing else: it opens no
// file but the disk, has no network, no exec, no capability. libarchive and zlib read hostile bytes
// there; what they could be made to do is spoil this one disk, whose content is hostile anyway.

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/progress.h"
#include "base/result.h"
#include "image/digest.h"
#include "image/oci.h"

namespace sandbox {

struct DiskLayer {
  Fd blob;
  Descriptor descriptor;
  Digest diff_id;
};

struct DiskJob {
  std::vector<DiskLayer> layers;  // from the bottom up
  std::string disk_path;          // must not exist; removed again when the build fails
  Digest seed;                    // decides the file system's UUID
  uint64_t disk_bytes = 0;        // virtual size
};

// Space that a build leaves on the host's file system.
inline constexpr uint64_t kKeepFreeBytes = 512ULL << 20;

Status build_disk(const DiskJob& job, Progress& progress);

}  // namespace sandbox
