#pragma once
// The merged file system of an image, in memory: names and metadata, and where the content already
// lies on the disk.
//
// Layers are applied from the bottom up, entries in the order of the archive:
//   begin_layer(); for each entry: check_name, then put() or link() or, for a whiteout name,
//   whiteout(); end_layer();
//
// What the OCI image specification (layer.md) says about whiteouts is applied at end_layer(), when
// all entries of the layer are known, so their order in the archive does not matter: ".wh.x"
// removes what lower layers put at x, ".wh..wh..opq" removes what they put in its folder, and
// entries of the same layer stay. A hard link may therefore name a file that its own layer deletes.
//
// Names: a leading "/" and "." parts are dropped; ".." parts are resolved lexically and must not
// leave the root. Where a parent folder is a symbolic link in the tree, it is followed inside the
// tree, as a container engine does that unpacks onto the layers below ("lib/x" over a "lib ->
// usr/lib" lands in usr/lib). Nothing here touches a file of the host, so a link that points out of
// the root simply ends at the root.
//
// Every limit below exists because an image is hostile input; reaching one is Code::kLimit.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sandbox {

// A run of blocks of a file's content. All three in blocks of kDiskBlock bytes.
struct Extent {
  uint32_t logical = 0;
  uint32_t count = 0;
  uint64_t physical = 0;
};
inline constexpr uint32_t kDiskBlock = 4096;

enum class FileKind : uint8_t { kFile, kDirectory, kSymlink, kCharDevice, kBlockDevice, kFifo };

struct FileInode {
  FileKind kind = FileKind::kFile;
  uint32_t mode = 0;  // permission bits with setuid, setgid, sticky: 07777
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime = 0;  // seconds since 1970
  uint32_t mtime_ns = 0;
  uint32_t links = 0;  // names in the tree; not used for directories
  uint32_t device_major = 0;
  uint32_t device_minor = 0;
  uint64_t size = 0;            // of a regular file
  std::string target;           // of a symbolic link, verbatim
  std::vector<Extent> extents;  // of a regular file, ascending; gaps are holes
  std::vector<std::pair<std::string, std::string>> xattrs;  // "user.x" → value
};

class FileTree {
 public:
  struct Node {
    uint32_t inode = 0;
    uint32_t layer = 0;  // the last layer with an entry for this very name; lower for parents that
                         // only it needed
    std::unique_ptr<std::map<std::string, Node, std::less<>>> children;  // directories only
  };
  using Children = std::map<std::string, Node, std::less<>>;

  static constexpr size_t kMaxEntries = 2'000'000;  // of all layers together
  static constexpr size_t kMaxName = 255;           // bytes of one part; ext4's own
  static constexpr size_t kMaxPath = 4096;  // bytes of a name in the archive; Linux' PATH_MAX
  static constexpr size_t kMaxTarget =
      4095;  // bytes of a symbolic link's target; ext4 keeps it in one block
  static constexpr size_t kMaxDepth = 256;  // folders above an entry
  static constexpr size_t kMaxXattrBytes =
      3072;  // names and values of one file, so that inode and one block hold them
  static constexpr size_t kMaxHops = 40;  // symbolic links followed for one name; Linux' own
  static constexpr size_t kMaxSteps = 100'000'000;  // parts looked up for all names

  FileTree();

  void begin_layer();
  // Whether a name is acceptable, before its content is read.
  [[nodiscard]] Status check_name(std::string_view name) const;
  // A file, directory, link or device. Replaces what has the name, except a directory over a
  // directory: that keeps the content and takes the metadata.
  Status put(std::string_view name, FileInode inode);
  // A second name for a file of this or a lower layer.
  Status link(std::string_view name, std::string_view target);
  // True when the last part starts with ".wh."; such an entry goes to whiteout() whatever its type.
  [[nodiscard]] static bool is_whiteout(std::string_view name);
  Status whiteout(std::string_view name);
  Status end_layer();

  [[nodiscard]] const Node& root() const { return root_; }
  [[nodiscard]] const FileInode& inode(uint32_t number) const { return inodes_[number]; }
  [[nodiscard]] size_t inode_count() const { return inodes_.size(); }
  // nullptr when absent. Does not follow symbolic links; for tests and diagnoses.
  [[nodiscard]] const Node* find(std::string_view path) const;
  // Extents of content that no name leads to any more, since the last call.
  std::vector<Extent> take_freed() { return std::exchange(freed_, {}); }

 private:
  struct Whiteout {
    std::string folder;
    std::string name;  // empty: opaque
  };
  struct Place {
    Node* parent = nullptr;
    size_t depth = 0;  // of the parent; the root has 0
  };
  enum class Missing { kCreate, kReport };

  Status count_entry();
  Result<Place> resolve(const std::vector<std::string_view>& parts, Missing missing);
  Node& make_directory(Node& parent, std::string_view name);
  uint32_t new_inode(FileInode inode);
  void release(Node& node);  // everything at and below it
  void release_inode(uint32_t number);
  // Removes what came from lower layers; true when nothing is left.
  bool prune(Node& node);
  void prune_children(Node& node);

  Node root_;
  std::deque<FileInode> inodes_;
  std::vector<Extent> freed_;
  std::vector<Whiteout> whiteouts_;
  uint32_t layer_ = 0;
  size_t entries_ = 0;
  size_t steps_ = 0;
};

}  // namespace sandbox
