#pragma once
// Writes an ext4 file system into a sparse file: file content first, in the order it arrives,
// metadata last.
//
//   ASSIGN(auto disk, DiskWriter::create(path, seed));      // superblock, group tables, journal:
//   in memory disk->write(…); disk->end_file(); …                     // content streams to the
//   next free blocks TRY(disk->finish(tree));                                // inodes,
//   directories, bitmaps
//
// Content goes to a cursor that only moves forward over free blocks, through one large buffer, so
// neighbouring files leave in single big writes and nearly every file is one extent. Nothing is
// allocated in the file system's own books until finish(), which knows which files survived the
// merge: blocks of the others are simply never marked, and are punched out of the host's file.

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "image/content_sink.h"
#include "image/digest.h"
#include "image/file_tree.h"

namespace sandbox {

class DiskWriter final : public ContentSink {
 public:
  struct Limits {
    uint64_t disk_bytes;     // virtual size of the disk; a multiple of 128 MiB
    uint64_t keep_free = 0;  // bytes that must stay free on the host's file system
  };

  // `path` is created, 0600, and must not exist. `seed` decides the file system's UUID, so that the
  // same image makes the same disk.
  static Result<std::unique_ptr<DiskWriter>> create(const std::string& path, const Digest& seed,
                                                    const Limits& limits);
  ~DiskWriter() override;

  Status write(uint64_t offset, ByteView bytes) override;
  Result<std::vector<Extent>> end_file() override;
  void discard(const std::vector<Extent>& extents) override;

  // Writes all metadata and waits until the disk is on stable storage. The writer is of no use
  // afterwards.
  Status finish(const FileTree& tree);

 private:
  class FileSystem;  // libext2fs; its headers stay in the .cc
  struct Run {
    uint64_t start = 0;
    uint64_t count = 0;
  };

  DiskWriter(Fd fd, std::unique_ptr<FileSystem> fs, const Limits& limits);
  Result<Run> take_run(uint64_t at_most);
  Status append(ByteView bytes);
  Status append_zeros(uint64_t count);
  Status start_blocks(uint64_t wanted_bytes);
  Status flush();
  Status check_host_space();

  Fd fd_;
  std::unique_ptr<FileSystem> fs_;
  Limits limits_;
  Run free_;      // the free run the cursor is in
  Bytes buffer_;  // content not yet written, for block buffer_start_ on
  uint64_t buffer_start_ = 0;
  uint64_t written_ = 0;  // bytes flushed, for check_host_space()
  uint64_t checked_at_ = 0;
  std::vector<Extent> extents_;  // of the current file
  uint64_t position_ = 0;        // next byte of the current file
  uint64_t block_room_ = 0;      // bytes of already taken blocks behind position_
};

}  // namespace sandbox
