#pragma once
// Reads synthetic layers into a tree with the content in memory, and shows the result as text.

#include <archive.h>
#include <archive_entry.h>

#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "image/layer.h"

namespace sandbox::test {

// Content as files of blocks that are counted up; readable again by extents.
class MemorySink final : public ContentSink {
 public:
  Status write(uint64_t offset, ByteView bytes) override {
    if (offset < current_.size()) return fail(Code::kInvalid, "out of order");
    if (offset > (64U << 20)) return fail(Code::kLimit, "too much for a test");
    current_.resize(offset);
    current_.append(as_text(bytes));
    return {};
  }
  Result<std::vector<Extent>> end_file() override {
    std::vector<Extent> extents;
    if (!current_.empty()) {
      extents.push_back({0, 1, contents_.size()});
      contents_.push_back(std::exchange(current_, {}));
    }
    return extents;
  }
  void discard(const std::vector<Extent>& extents) override {
    for (const Extent& extent : extents) discarded_.push_back(contents_[extent.physical]);
  }
  [[nodiscard]] std::string content(const FileInode& inode) const {
    return inode.extents.empty() ? "" : contents_[inode.extents[0].physical];
  }
  [[nodiscard]] const std::vector<std::string>& discarded() const { return discarded_; }

 private:
  std::string current_;
  std::vector<std::string> contents_;
  std::vector<std::string> discarded_;
};

enum class Packing { kGzip, kZstd };

inline std::string pack(const std::string& bytes, Packing packing) {
  std::string out(bytes.size() + bytes.size() / 8 + 65536, '\0');
  size_t used = 0;
  archive* a = archive_write_new();
  archive_write_set_format_raw(a);
  if (packing == Packing::kGzip) {
    archive_write_add_filter_gzip(a);
  } else {
    archive_write_add_filter_zstd(a);
  }
  archive_write_set_bytes_in_last_block(a, 1);
  archive_write_open_memory(a, out.data(), out.size(), &used);
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, "data");
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_write_header(a, entry);
  archive_write_data(a, bytes.data(), bytes.size());
  archive_entry_free(entry);
  archive_write_close(a);
  archive_write_free(a);
  out.resize(used);
  return out;
}
inline std::string gzip(const std::string& bytes) {
  return pack(bytes, Packing::kGzip);
}
inline std::string zstd(const std::string& bytes) {
  return pack(bytes, Packing::kZstd);
}

struct Merge {
  FileTree tree;
  MemorySink sink;
  LayerBudget budget{1ULL << 30, 0, 0};
  NoProgress progress;

  Status add_blob(const std::string& blob, const Descriptor& promised, const Digest& diff_id) {
    auto fd = memory_file("layer", blob);
    if (!fd) return fail(std::move(fd.error()));
    return read_layer({fd->get(), promised, diff_id, "layer"}, tree, sink, budget, progress);
  }
  Status add(const std::string& tar) { return add_as(tar, tar); }
  // `blob` as what `tar` was packed into.
  Status add_as(const std::string& blob, const std::string& tar) {
    return add_blob(blob, {Digest::of(as_bytes(blob)), blob.size(), ""}, Digest::of(as_bytes(tar)));
  }

  // "/", "/etc/ 0755", "/etc/passwd = content", "/bin -> usr/bin"
  [[nodiscard]] std::vector<std::string> listing() const {
    std::vector<std::string> out;
    list(tree.root(), "", out);
    return out;
  }
  [[nodiscard]] const FileInode* inode(std::string_view path) const {
    const auto* node = tree.find(path);
    return node == nullptr ? nullptr : &tree.inode(node->inode);
  }

 private:
  void list(const FileTree::Node& node, const std::string& path,
            std::vector<std::string>& out) const {
    for (const auto& [name, child] : *node.children) {
      const FileInode& inode = tree.inode(child.inode);
      const std::string full = path + "/" + name;
      switch (inode.kind) {
        case FileKind::kDirectory:
          out.push_back(full + "/");
          break;
        case FileKind::kFile:
          out.push_back(full + " = " + sink.content(inode));
          break;
        case FileKind::kSymlink:
          out.push_back(full + " -> " + inode.target);
          break;
        case FileKind::kCharDevice:
        case FileKind::kBlockDevice:
          out.push_back(
              fmt::format("{} device {}:{}", full, inode.device_major, inode.device_minor));
          break;
        case FileKind::kFifo:
          out.push_back(full + " fifo");
          break;
      }
      if (child.children) list(child, full, out);
    }
  }
};

}  // namespace sandbox::test
