#pragma once
// One share: real files of the host behind node numbers. Everything that touches a file is here;
// the FUSE protocol is in server.h and never sees a path or a descriptor.
//
// How a file is reached. The guest names a directory by its node and an entry by a Name. The
// directory becomes an O_PATH descriptor (cached, see FdCache) and every call is made relative to
// it with that one name, never following a symlink. A directory that is not cached is opened again
// along the names that the table has for it, each step by openat2 with RESOLVE_BENEATH |
// RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV, and is taken only if it is still
// the same file (identity, not name); otherwise the guest gets ESTALE, upon which its kernel looks
// the path up again.
//
// How a file is opened for its content. First as O_PATH, which opens nothing; then it must be a
// regular file (or a directory); then that very file is opened through /proc/self/fd, so nothing
// can take its place in between. Opening a device or a FIFO of the host, which may block or do
// something, cannot happen.
//
// Mount points beneath a share are not entered (EACCES): what is mounted there may be another
// kernel file system, /proc among them, whose regular files are not data.
//
// What is never made: devices, set-user-ID, set-group-ID and sticky bits (they are masked off; a
// directory keeps those that it has and the guest names again). What is never changed: owners. A
// change to the owner that the guest already sees succeeds and does nothing, any other is EPERM.
//
// Freshness. Directories in which the guest looks are watched with inotify; what the host changes
// there becomes an Invalidation for the guest's caches. The events only say where to look: what is
// sent follows from comparing the file with what the guest was told last, so changes that the guest
// made itself cost nothing. Without a watch (limits of the host) the guest is told to cache
// nothing.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "files/fd_cache.h"
#include "files/name.h"
#include "files/node_table.h"
#include "files/outcome.h"

namespace sandbox::files {

using HandleId = uint64_t;

struct TreeOptions {
  uint32_t uid = 1000;  // what the invoking user's files appear as
  uint32_t gid = 1000;
  bool read_only = false;
  size_t cached_fds = 1024;    // O_PATH descriptors kept
  size_t open_handles = 4096;  // files and directories the guest may have open
  size_t nodes = 2'000'000;    // about 300 bytes each
  size_t watches = 16'384;     // directories watched
};

struct Time {
  int64_t seconds = 0;
  uint32_t nanoseconds = 0;
};

struct Attributes {
  FileKey key;
  uint32_t mode = 0;
  uint32_t uid = 0;  // already mapped for the guest
  uint32_t gid = 0;
  uint32_t links = 0;
  uint32_t block_size = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  uint64_t blocks = 0;
  Time atime, mtime, ctime;

  [[nodiscard]] Stamp stamp() const;
};

// What the guest may cache without asking again.
enum class Freshness { kWatched, kUnwatched };

struct Entry {
  NodeId node = 0;
  Attributes attributes;
  Freshness name_freshness = Freshness::kUnwatched;
  Freshness freshness = Freshness::kUnwatched;  // of the attributes
};

struct AttributesReply {
  Attributes attributes;
  Freshness freshness = Freshness::kUnwatched;
};

struct Opened {
  HandleId handle = 0;
  bool keep_cache = false;  // the pages the guest has of this file are still right
};

struct Created {
  Entry entry;
  HandleId handle = 0;
};

struct NewTime {
  enum class Kind { kKeep, kNow, kSet } kind = Kind::kKeep;
  Time time;
};

struct AttributeChange {
  std::optional<uint32_t> mode;
  std::optional<uint32_t> uid;
  std::optional<uint32_t> gid;
  std::optional<uint64_t> size;
  NewTime atime, mtime;
};

// One entry of a directory listing, as getdents64 gives it.
struct ListedName {
  uint64_t inode = 0;
  uint64_t next_offset = 0;  // the cookie that continues after this entry
  uint8_t type = 0;          // DT_*
  size_t record = 0;         // bytes of the listing that it takes
  std::string_view name;     // valid until the handle is read again
};

struct Invalidation {
  enum class Kind {
    kEntry,       // `name` in `node` leads elsewhere now
    kContent,     // attributes and pages of `node`
    kAttributes,  // attributes of `node`
  } kind = Kind::kAttributes;
  NodeId node = 0;
  std::string name;
};

class Tree {
 public:
  // `path` is a directory or a regular file, which then is the root itself. Opens it, the way to
  // /proc/self/fd and an inotify instance; everything later is relative to these.
  static Result<std::unique_ptr<Tree>> open(const std::string& path, const TreeOptions& options);
  ~Tree();

  // Forgets every node and handle: a new mount begins.
  void reset();
  [[nodiscard]] bool read_only() const { return options_.read_only; }

  Outcome<Entry> look_up(NodeId parent, const Name& name);
  void forget(NodeId node, uint64_t count);
  Outcome<AttributesReply> attributes(NodeId node, std::optional<HandleId> handle);
  Outcome<AttributesReply> change(NodeId node, std::optional<HandleId> handle,
                                  const AttributeChange& change);
  Outcome<std::string> read_link(NodeId node);

  // Mutations; EROFS on a read-only share.
  Outcome<Entry> make_directory(NodeId parent, const Name& name, uint32_t mode);
  Outcome<Entry> make_symlink(NodeId parent, const Name& name, const std::string& target);
  // Regular files, FIFOs and sockets; anything else is EPERM.
  Outcome<Entry> make_node(NodeId parent, const Name& name, uint32_t mode);
  Outcome<Entry> make_link(NodeId node, NodeId parent, const Name& name);
  Outcome<void> unlink(NodeId parent, const Name& name, bool directory);
  // flags: RENAME_NOREPLACE, RENAME_EXCHANGE or 0.
  Outcome<void> rename(NodeId from, const Name& from_name, NodeId to, const Name& to_name,
                       uint32_t flags);

  // `flags` as in open(2); what does not belong there is dropped.
  Outcome<Opened> open_file(NodeId node, uint32_t flags);
  Outcome<Created> create(NodeId parent, const Name& name, uint32_t flags, uint32_t mode);
  Outcome<HandleId> open_directory(NodeId node);
  void release(HandleId handle);

  // Read at most out.size() bytes.
  Outcome<size_t> read(NodeId node, HandleId handle, uint64_t offset, std::span<uint8_t> out);
  // `from_cache`: pages written back from a shared mapping, whose offset holds even on a descriptor
  // opened for appending.
  Outcome<size_t> write(NodeId node, HandleId handle, uint64_t offset, ByteView data,
                        bool from_cache);
  Outcome<void> sync(NodeId node, HandleId handle, bool data_only);
  Outcome<void> allocate(NodeId node, HandleId handle, uint64_t offset, uint64_t length,
                         uint32_t mode);
  Outcome<uint64_t> seek(NodeId node, HandleId handle, uint64_t offset, uint32_t whence);
  Outcome<size_t> copy_range(NodeId from, HandleId from_handle, uint64_t from_offset, NodeId to,
                             HandleId to_handle, uint64_t to_offset, uint64_t length);
  // Calls `take` for each entry from `offset` on until it returns false (that entry comes again) or
  // there are no more.
  template <class Take>
  Outcome<void> list(NodeId node, HandleId handle, uint64_t offset, Take&& take);

  struct Space {
    uint64_t blocks, free, available, files, files_free;
    uint32_t block_size, name_length, fragment_size;
  };
  Outcome<Space> space();

  // Readable when host changes wait to be read; -1 where there is no watching.
  [[nodiscard]] int watch_fd() const { return inotify_.get(); }
  void read_changes(std::vector<Invalidation>& out);

  [[nodiscard]] size_t open_handles() const { return handles_.size(); }
  [[nodiscard]] size_t cached_fds() const { return cache_.size(); }
  [[nodiscard]] size_t nodes() const { return table_.size(); }
  [[nodiscard]] size_t watches() const { return watched_.size(); }

 private:
  struct Handle {
    NodeId node = 0;
    SharedFd fd;
    bool directory = false;
    bool append = false;
    // Directory listings: what getdents64 returned and has not been handed out.
    std::vector<uint8_t> names;
    size_t at = 0;
    uint64_t next_offset = 0;
  };

  explicit Tree(TreeOptions options);

  // Reaching files.
  SharedFd at_hand(NodeId node);  // without a system call, or nullptr
  Outcome<SharedFd> hold(NodeId node);
  Outcome<SharedFd> hold_by_other_names(const Node& node, Errno otherwise);
  Outcome<SharedFd> hold_directory(NodeId node);
  Outcome<SharedFd> directory_to_change(NodeId node);
  Outcome<SharedFd> open_step(int directory, const std::string& name, const FileKey& expected);
  Outcome<Fd> reopen(int path_fd, int flags);
  Outcome<Attributes> examine(int directory, const char* name, int flags);
  Outcome<Attributes> examine_node(Node& node, std::optional<HandleId> handle);

  Outcome<Handle*> handle(NodeId node, HandleId id, bool directory);
  Outcome<Handle*> handle_to_change(NodeId node, HandleId id);
  Outcome<HandleId> add_handle(Node& node, Fd fd, bool directory, bool append);
  Outcome<Created> open_existing(int directory, NodeId parent, const Name& name, uint32_t flags);
  // The next entry, which stays the next until `at` moves on; false at the end.
  Outcome<bool> next_name(Handle& listing, ListedName& out);
  Outcome<void> seek_listing(Handle& listing, uint64_t offset);

  // What the guest learns and what it therefore knows.
  Outcome<Entry> enter(const Attributes& now, NodeId parent, const Name& name);
  Outcome<Entry> answer(int directory, NodeId parent, const Name& name);
  Outcome<Entry> made(int directory, NodeId parent, const Name& name);
  Freshness freshness_of(const Node& node);
  void own_change(NodeId node);
  static void own_content_change(Node& node, const Stamp& before, const Stamp& after);
  void note_own_move(int directory, NodeId parent, const Name& name,
                     const Outcome<Attributes>& before);
  void note_own_write(NodeId node, int fd, const Attributes& before);

  static Outcome<void> check_owner(const Attributes& now, const AttributeChange& change);
  Outcome<void> change_size(NodeId node, std::optional<HandleId> handle, int fd, uint64_t size);
  Outcome<void> change_mode(int fd, const Attributes& now, uint32_t mode);
  Outcome<void> change_times(int fd, const AttributeChange& change);

  // Changes of the host.
  void watch(NodeId directory, int fd);
  void host_changed(NodeId directory, std::string_view name, bool modified,
                    std::vector<Invalidation>& out);
  void host_took_name(const Node& child, NodeId parent, std::string_view name,
                      std::vector<Invalidation>& out);
  static void compare(Node& node, const Attributes& now, bool modified,
                      std::vector<Invalidation>& out);
  void compare_directory(NodeId directory, std::vector<Invalidation>& out);
  void compare_everything(std::vector<Invalidation>& out);

  TreeOptions options_;
  uint64_t root_mount_ = 0;
  uint32_t owner_uid_ = 0;  // of the host: who this process is
  uint32_t owner_gid_ = 0;
  SharedFd root_;
  Fd proc_fds_;
  Fd inotify_;
  NodeTable table_;
  FdCache cache_;
  std::unordered_map<HandleId, Handle> handles_;
  HandleId next_handle_ = 1;
  std::unordered_map<int, NodeId> watched_;
};

template <class Take>
Outcome<void> Tree::list(NodeId node, HandleId id, uint64_t offset, Take&& take) {
  auto opened = handle(node, id, true);
  if (!opened) return refuse(opened.error());
  Handle& listing = **opened;
  if (auto sought = seek_listing(listing, offset); !sought) return sought;
  while (true) {
    ListedName entry;
    auto more = next_name(listing, entry);
    if (!more) return refuse(more.error());
    if (!*more) return {};
    if (!take(entry)) return {};
    listing.next_offset = entry.next_offset;
    listing.at += entry.record;
  }
}

}  // namespace sandbox::files
