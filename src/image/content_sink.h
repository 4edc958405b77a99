#pragma once
// Where file content goes while a layer is read: one file at a time, in the order of the archive.

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "image/file_tree.h"

namespace sandbox {

class ContentSink {
 public:
  virtual ~ContentSink() = default;
  // Bytes of the current file. Offsets ascend; what is skipped reads as zeros and takes no room.
  virtual Status write(uint64_t offset, ByteView bytes) = 0;
  // Ends the current file and says where its content lies.
  virtual Result<std::vector<Extent>> end_file() = 0;
  // Content that will not be in the image after all.
  virtual void discard(const std::vector<Extent>& extents) = 0;
};

}  // namespace sandbox
