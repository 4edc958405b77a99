// fuzz-libs: sandbox_image
// A layer blob, of one to four layers split at a rare marker, merged into a tree. The digests are
// right, so that the bytes decide; afterwards the tree's own books must balance.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "image/layer.h"

namespace {

using namespace sandbox;

class CountingSink final : public ContentSink {
 public:
  Status write(uint64_t offset, ByteView bytes) override {
    if (offset < position_) return fail(Code::kInvalid, "out of order");
    position_ = offset + bytes.size();
    return {};
  }
  Result<std::vector<Extent>> end_file() override {
    std::vector<Extent> out;
    if (position_ != 0) out.push_back({0, 1, next_++});
    position_ = 0;
    return out;
  }
  void discard(const std::vector<Extent>&) override {}

 private:
  uint64_t position_ = 0;
  uint64_t next_ = 0;
};

void count_names(const FileTree& tree, const FileTree::Node& node, size_t depth,
                 std::map<uint32_t, uint32_t>& names) {
  if (depth > FileTree::kMaxDepth) std::abort();
  for (const auto& [name, child] : *node.children) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      std::abort();
    if ((tree.inode(child.inode).kind == FileKind::kDirectory) != (child.children != nullptr))
      std::abort();
    ++names[child.inode];
    if (child.children) count_names(tree, child, depth + 1, names);
  }
}

void check(const FileTree& tree) {
  std::map<uint32_t, uint32_t> names;
  count_names(tree, tree.root(), 0, names);
  for (const auto& [inode, count] : names) {
    const bool directory = tree.inode(inode).kind == FileKind::kDirectory;
    if (directory ? count != 1 : count != tree.inode(inode).links) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr std::string_view kMarker = "\xF5next\xF5";
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  FileTree tree;
  CountingSink sink;
  NoProgress progress;
  LayerBudget budget{4U << 20, 0, 0};
  for (int layer = 0; layer < 4; ++layer) {
    const size_t end = rest.find(kMarker);
    const std::string_view blob = rest.substr(0, end);
    auto fd = memory_file("layer", blob);
    if (!fd) return 0;
    // The diff_id is not known before; a mismatch comes last, when everything was read.
    (void)read_layer({fd->get(),
                      {Digest::of(as_bytes(blob)), blob.size(), ""},
                      Digest::of(as_bytes(blob)),
                      "layer"},
                     tree, sink, budget, progress);
    check(tree);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + kMarker.size());
  }
  return 0;
}
