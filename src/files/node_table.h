#pragma once
// The numbers by which the guest kernel speaks of files, and what each of them stands for.
//
// A node is one file of the host, known by its identity (device, inode, time of birth: an inode
// number is used again soon after a file was deleted, its birth time is not) and by the names under
// which it was last seen. The table opens nothing; it is the pure half of Tree.
//
// Invariants:
//   * One identity has one node, whatever its number of hard links: the guest caches pages by node,
//   and two nodes for one
//     file would be two caches.
//   * A name in a directory belongs to at most one node. A directory has exactly one name, the one
//   seen last.
//   * Numbers are never used again, so no generation is needed. The root is 1 and is never
//   forgotten.
//   * A node lives while the guest holds lookups on it: LOOKUP and everything that answers with an
//   entry add one, FORGET
//     takes them off. A guest that forgets more than it has looked up reaches zero, not less.
//
// Names may be stale: the host renames what it wants. Who follows them must check the identity of
// what they lead to, and may meet a loop (two directories, each seen last inside the other).

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sandbox::files {

using NodeId = uint64_t;
inline constexpr NodeId kRootNode = 1;

struct FileKey {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t born_ns = 0;  // 0 where the file system keeps no birth times
  friend bool operator==(const FileKey&, const FileKey&) = default;
};

// What changes when a file's content or attributes change.
struct Stamp {
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

struct Link {
  NodeId parent = 0;
  std::string name;
  friend bool operator==(const Link&, const Link&) = default;
};

struct Node {
  NodeId id = 0;
  FileKey key;
  uint32_t type = 0;  // S_IFMT bits
  uint64_t lookups = 0;
  std::vector<Link> links;        // the one seen last stands last
  std::vector<uint64_t> handles;  // open ones
  Stamp told;                     // what the guest was told last
  Stamp cached;                   // the state of which the guest may hold pages
  int64_t own_change_ns = 0;      // wall time of the last change that this guest itself made
  int watch = -1;                 // inotify's number, for directories that are watched
};

class NodeTable {
 public:
  explicit NodeTable(size_t limit);

  void set_root(const FileKey& key, uint32_t type);
  [[nodiscard]] Node* find(NodeId id);
  [[nodiscard]] Node* child(NodeId parent, std::string_view name);

  // The node of this identity, made if new, now known under this name, with one more lookup.
  // nullptr: the table is full.
  Node* look_up(const FileKey& key, uint32_t type, NodeId parent, std::string_view name);
  // Returns true when the node is gone; `last` then has what it was.
  bool forget(NodeId id, uint64_t count, Node* last = nullptr);

  // A known file was seen under this name, other than by the guest.
  void adopt_name(const FileKey& key, NodeId parent, std::string_view name);
  void remove_name(NodeId parent, std::string_view name);
  void rename(NodeId from, std::string_view from_name, NodeId to, std::string_view to_name);
  void exchange(NodeId from, std::string_view from_name, NodeId to, std::string_view to_name);

  [[nodiscard]] size_t size() const { return nodes_.size(); }
  // For the rare walk over everything; the callback must not change the table.
  template <class Callback>
  void for_each(Callback&& callback) {
    for (auto& [id, node] : nodes_) callback(node);
  }

 private:
  struct KeyHash {
    size_t operator()(const FileKey& key) const;
  };
  struct NameRef {
    NodeId parent;
    std::string_view name;
  };
  struct NameHash {
    using is_transparent = void;
    size_t operator()(const NameRef& ref) const;
    size_t operator()(const Link& link) const { return (*this)(NameRef{link.parent, link.name}); }
  };
  struct NameEqual {
    using is_transparent = void;
    static NameRef ref(const Link& link) { return {link.parent, link.name}; }
    static NameRef ref(const NameRef& r) { return r; }
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return ref(a).parent == ref(b).parent && ref(a).name == ref(b).name;
    }
  };

  void add_name(Node& node, NodeId parent, std::string_view name);

  size_t limit_;
  NodeId next_ = kRootNode + 1;
  std::unordered_map<NodeId, Node> nodes_;
  std::unordered_map<FileKey, NodeId, KeyHash> by_key_;
  std::unordered_map<Link, NodeId, NameHash, NameEqual> by_name_;
};

}  // namespace sandbox::files
