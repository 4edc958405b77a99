#include "files/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ranges>

#include "base/clock.h"
#include "files/transport.h"

namespace sandbox::files {

namespace {

// Deeper chains of names are a loop of stale names or an attempt at one.
constexpr size_t kMostDepth = 4096;
// Two changes closer together than this may leave the same time stamp: kernels count time of files
// in ticks of 1 to 10 ms.
constexpr int64_t kRacyNs = 20'000'000;
constexpr size_t kListingBuffer = 16U << 10;
constexpr size_t kMostCopy = 8U << 20;  // per request, so that no request takes long
constexpr uint32_t kNobody = 65534;
constexpr uint32_t kWatchMask = IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                                IN_MOVED_TO | IN_ONLYDIR | IN_EXCL_UNLINK;
constexpr uint32_t kBillion = 1'000'000'000;

std::string number(int fd) {
  return std::to_string(fd);
}

// For stamps, which are compared for equality. Some file systems keep any number of seconds, so the
// guest chooses this one: beyond the year 2262 it wraps around.
int64_t nanoseconds(const Time& t) {
  return static_cast<int64_t>(static_cast<uint64_t>(t.seconds) * kBillion + t.nanoseconds);
}
Time time_of(const struct statx_timestamp& t) {
  return {t.tv_sec, t.tv_nsec};
}

bool fits_offset(uint64_t offset, uint64_t length) {
  constexpr uint64_t kMost = INT64_MAX;
  return offset <= kMost && length <= kMost - offset;
}

int open_flags(uint32_t guest) {
  constexpr auto kKept = static_cast<uint32_t>(O_ACCMODE | O_APPEND | O_TRUNC | O_DSYNC | O_SYNC);
  return static_cast<int>(guest & kKept) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
}

bool wants_write(uint32_t flags) {
  return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_TRUNC | O_CREAT)) != 0;
}

bool recently(int64_t wall_ns) {
  return wall_now_ns() - wall_ns < kRacyNs;
}

}  // namespace

Stamp Attributes::stamp() const {
  return {size, nanoseconds(mtime), nanoseconds(ctime)};
}

// ---- opening and closing the share

Tree::Tree(TreeOptions options)
    : options_(options), table_(options.nodes), cache_(options.cached_fds) {}

Tree::~Tree() = default;

Result<std::unique_ptr<Tree>> Tree::open(const std::string& path, const TreeOptions& options) {
  std::unique_ptr<Tree> tree(new Tree(options));
  ASSIGN(Fd root, sandbox::open_file(path, O_PATH));
  struct statx raw {};
  if (::statx(root.get(), "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &raw) < 0)
    return fail_errno(errno, path);
  if (!S_ISDIR(raw.stx_mode) && !S_ISREG(raw.stx_mode))
    return fail(Code::kInvalid, "{} is neither a directory nor a regular file", path);
  tree->root_mount_ = raw.stx_mnt_id;
  tree->owner_uid_ = ::geteuid();
  tree->owner_gid_ = ::getegid();
  tree->root_ = std::make_shared<const Fd>(std::move(root));
  ASSIGN(tree->proc_fds_, sandbox::open_file("/proc/self/fd", O_PATH | O_DIRECTORY));
  // Without inotify (its instances are limited per user) the guest caches nothing, which is slower
  // and as right.
  tree->inotify_ = Fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  tree->reset();
  return tree;
}

void Tree::reset() {
  handles_.clear();
  cache_.clear();
  for (const auto& [wd, node] : watched_) (void)::inotify_rm_watch(inotify_.get(), wd);
  watched_.clear();
  table_ = NodeTable(options_.nodes);
  auto now = examine(root_->get(), "", AT_EMPTY_PATH);
  if (now) table_.set_root(now->key, now->mode & S_IFMT);
}

// ---- reaching files

Outcome<Attributes> Tree::examine(int directory, const char* name, int flags) {
  struct statx raw {};
  constexpr unsigned kWanted = STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID;
  if (::statx(directory, name, flags | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, kWanted, &raw) < 0)
    return refuse(errno);
  if ((raw.stx_mask & STATX_MNT_ID) != 0 && raw.stx_mnt_id != root_mount_) return refuse(EACCES);
  Attributes out;
  out.key.device = makedev(raw.stx_dev_major, raw.stx_dev_minor);
  out.key.inode = raw.stx_ino;
  if ((raw.stx_mask & STATX_BTIME) != 0) out.key.born_ns = nanoseconds(time_of(raw.stx_btime));
  out.mode = raw.stx_mode;
  const auto map = [](uint32_t id, uint32_t owner, uint32_t shown) {
    if (id == owner) return shown;
    return id == 0 ? 0U : kNobody;
  };
  out.uid = map(raw.stx_uid, owner_uid_, options_.uid);
  out.gid = map(raw.stx_gid, owner_gid_, options_.gid);
  out.links = raw.stx_nlink;
  out.block_size = raw.stx_blksize;
  out.inode = raw.stx_ino;
  out.size = raw.stx_size;
  out.blocks = raw.stx_blocks;
  out.atime = time_of(raw.stx_atime);
  out.mtime = time_of(raw.stx_mtime);
  out.ctime = time_of(raw.stx_ctime);
  return out;
}

SharedFd Tree::at_hand(NodeId id) {
  if (id == kRootNode) return root_;
  if (SharedFd cached = cache_.get(id)) return cached;
  const Node* node = table_.find(id);
  if (node == nullptr || node->handles.empty()) return nullptr;
  const auto it = handles_.find(node->handles.front());
  return it == handles_.end() ? nullptr : it->second.fd;
}

Outcome<SharedFd> Tree::open_step(int directory, const std::string& name, const FileKey& expected) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  Fd fd(static_cast<int>(::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how)));
  if (!fd) {
    const bool moved = errno == ENOENT || errno == ELOOP || errno == ENOTDIR;
    return refuse(moved ? ESTALE : errno);
  }
  auto now = examine(fd.get(), "", AT_EMPTY_PATH);
  if (!now) return refuse(now.error());
  if (now->key != expected) return refuse(ESTALE);
  return std::make_shared<const Fd>(std::move(fd));
}

// Climbs from the node to the nearest directory that is open, then opens its way back down.
Outcome<SharedFd> Tree::hold(NodeId id) {
  if (SharedFd fd = at_hand(id)) return fd;
  std::vector<const Node*> way;
  SharedFd base;
  for (NodeId at = id; !base;) {
    const Node* node = table_.find(at);
    if (node == nullptr || node->links.empty() || way.size() == kMostDepth) return refuse(ESTALE);
    way.push_back(node);
    at = node->links.back().parent;
    base = at_hand(at);
  }
  for (const Node* step : std::ranges::reverse_view(way)) {
    const Node& node = *step;
    auto next = open_step(base->get(), node.links.back().name, node.key);
    if (!next && node.id == id) return hold_by_other_names(node, next.error());
    if (!next) return refuse(next.error());
    base = *next;
    if (S_ISDIR(node.type)) cache_.put(node.id, base);
  }
  return base;
}

// A file with several hard links, of which the host removed the one seen last.
Outcome<SharedFd> Tree::hold_by_other_names(const Node& node, Errno otherwise) {
  if (node.links.size() < 2) return refuse(otherwise);
  for (auto link = node.links.rbegin() + 1; link != node.links.rend(); ++link) {
    auto parent = hold(link->parent);
    if (!parent) continue;
    if (auto fd = open_step((*parent)->get(), link->name, node.key)) return fd;
  }
  return refuse(otherwise);
}

Outcome<SharedFd> Tree::hold_directory(NodeId id) {
  const Node* node = table_.find(id);
  if (node == nullptr) return refuse(ESTALE);
  if (!S_ISDIR(node->type)) return refuse(ENOTDIR);
  return hold(id);
}

Outcome<Attributes> Tree::examine_node(Node& node, std::optional<HandleId> handle) {
  if (handle) {
    const auto it = handles_.find(*handle);
    if (it == handles_.end() || it->second.node != node.id) return refuse(EBADF);
    return examine(it->second.fd->get(), "", AT_EMPTY_PATH);
  }
  if (S_ISDIR(node.type) || at_hand(node.id)) {
    auto fd = hold(node.id);
    if (!fd) return refuse(fd.error());
    return examine((*fd)->get(), "", AT_EMPTY_PATH);
  }
  for (auto link = node.links.rbegin(); link != node.links.rend(); ++link) {
    auto parent = hold(link->parent);
    if (!parent) continue;
    auto now = examine((*parent)->get(), link->name.c_str(), 0);
    if (now && now->key == node.key) return now;
  }
  return refuse(ESTALE);
}

Outcome<Fd> Tree::reopen(int path_fd, int flags) {
  Fd fd(::openat(proc_fds_.get(), number(path_fd).c_str(), flags));
  if (!fd) return refuse(errno);
  return fd;
}

// ---- what the guest learns

Freshness Tree::freshness_of(const Node& node) {
  const auto watched = [this](NodeId id) {
    const Node* directory = table_.find(id);
    return directory != nullptr && directory->watch >= 0;
  };
  bool fresh = node.id == kRootNode || (!node.links.empty() && watched(node.links.back().parent));
  if (S_ISDIR(node.type)) fresh = fresh && node.watch >= 0;
  return fresh ? Freshness::kWatched : Freshness::kUnwatched;
}

Outcome<Entry> Tree::enter(const Attributes& now, NodeId parent, const Name& name) {
  Node* node = table_.look_up(now.key, now.mode & S_IFMT, parent, name.view());
  if (node == nullptr) return refuse(ENOMEM);
  node->told = now.stamp();
  const Node* directory = table_.find(parent);
  const bool watched = directory != nullptr && directory->watch >= 0;
  return Entry{node->id, now, watched ? Freshness::kWatched : Freshness::kUnwatched,
               freshness_of(*node)};
}

Outcome<Entry> Tree::answer(int directory, NodeId parent, const Name& name) {
  auto now = examine(directory, name.c_str(), 0);
  if (!now) return refuse(now.error());
  return enter(*now, parent, name);
}

// The guest's kernel knows what its own operation did to this node, so the events of it need not be
// sent back.
void Tree::own_change(NodeId id) {
  Node* node = table_.find(id);
  if (node == nullptr) return;
  node->own_change_ns = wall_now_ns();
  if (auto now = examine_node(*node, std::nullopt)) node->told = now->stamp();
}

Outcome<Entry> Tree::look_up(NodeId parent, const Name& name) {
  auto directory = hold_directory(parent);
  if (!directory) return refuse(directory.error());
  // Before the file is examined: a change after that is an event.
  watch(parent, (*directory)->get());
  return answer((*directory)->get(), parent, name);
}

void Tree::forget(NodeId id, uint64_t count) {
  Node last;
  if (!table_.forget(id, count, &last)) return;
  cache_.erase(id);
  if (last.watch >= 0) {
    (void)::inotify_rm_watch(inotify_.get(), last.watch);
    watched_.erase(last.watch);
  }
  // Its open handles, which a well-behaved kernel would have released before, stay usable until
  // they are released.
}

Outcome<AttributesReply> Tree::attributes(NodeId id, std::optional<HandleId> handle) {
  Node* node = table_.find(id);
  if (node == nullptr) return refuse(ESTALE);
  auto now = examine_node(*node, handle);
  if (!now) return refuse(now.error());
  node->told = now->stamp();
  return AttributesReply{*now, freshness_of(*node)};
}

Outcome<std::string> Tree::read_link(NodeId id) {
  auto fd = hold(id);
  if (!fd) return refuse(fd.error());
  std::array<char, 4096> target{};
  const ssize_t n = ::readlinkat((*fd)->get(), "", target.data(), target.size());
  // readlinkat with an empty name says ENOENT of what is no symlink.
  if (n < 0) return refuse(errno == ENOENT ? EINVAL : errno);
  return std::string(target.data(), static_cast<size_t>(n));
}

// ---- changes of attributes

Outcome<void> Tree::check_owner(const Attributes& now, const AttributeChange& change) {
  const bool same_user = !change.uid || *change.uid == now.uid;
  const bool same_group = !change.gid || *change.gid == now.gid;
  if (!same_user || !same_group) return refuse(EPERM);
  return {};
}

Outcome<void> Tree::change_size(NodeId id, std::optional<HandleId> handle_id, int fd,
                                uint64_t size) {
  if (!fits_offset(size, 0)) return refuse(EFBIG);
  const auto length = static_cast<off_t>(size);
  if (handle_id) {
    auto opened = handle(id, *handle_id, false);
    if (!opened) return refuse(opened.error());
    if (::ftruncate((*opened)->fd->get(), length) == 0) return {};
    if (errno != EINVAL && errno != EBADF) return refuse(errno);
  }
  const Node* node = table_.find(id);
  if (node == nullptr || !S_ISREG(node->type)) return refuse(EINVAL);
  auto writable = reopen(fd, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (!writable) return refuse(writable.error());
  return outcome_of(::ftruncate(writable->get(), length));
}

Outcome<void> Tree::change_mode(int fd, const Attributes& now, uint32_t mode) {
  uint32_t wanted = mode & 0777U;
  if (S_ISDIR(now.mode)) wanted |= mode & now.mode & (S_ISGID | S_ISVTX);
  return outcome_of(::fchmodat(proc_fds_.get(), number(fd).c_str(), wanted, 0));
}

Outcome<void> Tree::change_times(int fd, const AttributeChange& change) {
  const auto convert = [](const NewTime& t) {
    timespec out{};
    if (t.kind == NewTime::Kind::kKeep) {
      out.tv_nsec = UTIME_OMIT;
    } else if (t.kind == NewTime::Kind::kNow) {
      out.tv_nsec = UTIME_NOW;
    } else {
      out.tv_sec = t.time.seconds;
      out.tv_nsec = t.time.nanoseconds;
    }
    return out;
  };
  for (const NewTime* t : {&change.atime, &change.mtime})
    if (t->kind == NewTime::Kind::kSet && t->time.nanoseconds >= kBillion) return refuse(EINVAL);
  const timespec times[2] = {convert(change.atime), convert(change.mtime)};
  return outcome_of(::utimensat(proc_fds_.get(), number(fd).c_str(), times, 0));
}

Outcome<AttributesReply> Tree::change(NodeId id, std::optional<HandleId> handle_id,
                                      const AttributeChange& change) {
  if (options_.read_only) return refuse(EROFS);
  Node* node = table_.find(id);
  if (node == nullptr) return refuse(ESTALE);
  auto before = examine_node(*node, handle_id);
  if (!before) return refuse(before.error());
  if (auto allowed = check_owner(*before, change); !allowed) return refuse(allowed.error());
  auto fd = hold(id);
  if (!fd) return refuse(fd.error());
  if (change.mode)
    if (auto done = change_mode((*fd)->get(), *before, *change.mode); !done)
      return refuse(done.error());
  if (change.size)
    if (auto done = change_size(id, handle_id, (*fd)->get(), *change.size); !done)
      return refuse(done.error());
  if (change.atime.kind != NewTime::Kind::kKeep || change.mtime.kind != NewTime::Kind::kKeep)
    if (auto done = change_times((*fd)->get(), change); !done) return refuse(done.error());
  auto after = examine((*fd)->get(), "", AT_EMPTY_PATH);
  if (!after) return refuse(after.error());
  own_content_change(*node, before->stamp(), after->stamp());
  node->told = after->stamp();  // the reply says so
  return AttributesReply{*after, freshness_of(*node)};
}

// What the guest knew to be right before its own change, it knows to be right after it.
void Tree::own_content_change(Node& node, const Stamp& before, const Stamp& after) {
  node.own_change_ns = wall_now_ns();
  if (node.told == before) node.told = after;
  if (node.cached == before) node.cached = after;
}

// ---- making, removing, renaming

Outcome<SharedFd> Tree::directory_to_change(NodeId parent) {
  if (options_.read_only) return refuse(EROFS);
  auto directory = hold_directory(parent);
  if (directory) watch(parent, (*directory)->get());
  return directory;
}

Outcome<Entry> Tree::made(int directory, NodeId parent, const Name& name) {
  own_change(parent);
  return answer(directory, parent, name);
}

Outcome<Entry> Tree::make_directory(NodeId parent, const Name& name, uint32_t mode) {
  auto directory = directory_to_change(parent);
  if (!directory) return refuse(directory.error());
  const int fd = (*directory)->get();
  if (::mkdirat(fd, name.c_str(), mode & 0777U) < 0) return refuse(errno);
  return made(fd, parent, name);
}

Outcome<Entry> Tree::make_symlink(NodeId parent, const Name& name, const std::string& target) {
  auto directory = directory_to_change(parent);
  if (!directory) return refuse(directory.error());
  const int fd = (*directory)->get();
  if (::symlinkat(target.c_str(), fd, name.c_str()) < 0) return refuse(errno);
  return made(fd, parent, name);
}

Outcome<Entry> Tree::make_node(NodeId parent, const Name& name, uint32_t mode) {
  auto directory = directory_to_change(parent);
  if (!directory) return refuse(directory.error());
  // mknod(2) without a type makes a regular file.
  const uint32_t type = (mode & S_IFMT) == 0 ? static_cast<uint32_t>(S_IFREG) : mode & S_IFMT;
  if (!S_ISREG(type) && !S_ISFIFO(type) && !S_ISSOCK(type)) return refuse(EPERM);
  const int fd = (*directory)->get();
  if (::mknodat(fd, name.c_str(), type | (mode & 0777U), 0) < 0) return refuse(errno);
  return made(fd, parent, name);
}

Outcome<Entry> Tree::make_link(NodeId id, NodeId parent, const Name& name) {
  auto directory = directory_to_change(parent);
  if (!directory) return refuse(directory.error());
  auto file = hold(id);
  if (!file) return refuse(file.error());
  const int fd = (*directory)->get();
  const auto before = examine((*file)->get(), "", AT_EMPTY_PATH);
  if (::linkat(proc_fds_.get(), number((*file)->get()).c_str(), fd, name.c_str(),
               AT_SYMLINK_FOLLOW) < 0)
    return refuse(errno);
  auto entry = made(fd, parent, name);
  if (entry) note_own_move(fd, parent, name, before);
  return entry;
}

Outcome<void> Tree::unlink(NodeId parent, const Name& name, bool directory) {
  auto fd = directory_to_change(parent);
  if (!fd) return refuse(fd.error());
  if (::unlinkat((*fd)->get(), name.c_str(), directory ? AT_REMOVEDIR : 0) < 0)
    return refuse(errno);
  if (const Node* gone = table_.child(parent, name.view())) cache_.erase(gone->id);
  table_.remove_name(parent, name.view());
  own_change(parent);
  return {};
}

Outcome<void> Tree::rename(NodeId from, const Name& from_name, NodeId to, const Name& to_name,
                           uint32_t flags) {
  if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) return refuse(EINVAL);
  auto from_fd = directory_to_change(from);
  if (!from_fd) return refuse(from_fd.error());
  auto to_fd = directory_to_change(to);
  if (!to_fd) return refuse(to_fd.error());
  const int from_at = (*from_fd)->get();
  const int to_at = (*to_fd)->get();
  const auto moved = examine(from_at, from_name.c_str(), 0);
  const auto other = examine(to_at, to_name.c_str(), 0);
  if (::syscall(SYS_renameat2, from_at, from_name.c_str(), to_at, to_name.c_str(), flags) < 0)
    return refuse(errno);
  if (flags == RENAME_EXCHANGE) {
    table_.exchange(from, from_name.view(), to, to_name.view());
  } else {
    if (const Node* gone = table_.child(to, to_name.view())) cache_.erase(gone->id);
    table_.rename(from, from_name.view(), to, to_name.view());
  }
  own_change(from);
  if (to != from) own_change(to);
  note_own_move(to_at, to, to_name, moved);
  if (flags == RENAME_EXCHANGE) note_own_move(from_at, from, from_name, other);
  return {};
}

// ---- open files

Outcome<HandleId> Tree::add_handle(Node& node, Fd fd, bool directory, bool append) {
  if (handles_.size() >= options_.open_handles) return refuse(ENFILE);
  const HandleId id = next_handle_++;
  Handle& made = handles_[id];
  made.node = node.id;
  made.fd = std::make_shared<const Fd>(std::move(fd));
  made.directory = directory;
  made.append = append;
  node.handles.push_back(id);
  return id;
}

Outcome<Tree::Handle*> Tree::handle(NodeId node, HandleId id, bool directory) {
  const auto it = handles_.find(id);
  if (it == handles_.end() || it->second.node != node || it->second.directory != directory)
    return refuse(EBADF);
  return &it->second;
}

Outcome<Tree::Handle*> Tree::handle_to_change(NodeId node, HandleId id) {
  if (options_.read_only) return refuse(EROFS);
  return handle(node, id, false);
}

Outcome<Opened> Tree::open_file(NodeId id, uint32_t flags) {
  if (options_.read_only && wants_write(flags)) return refuse(EROFS);
  if (handles_.size() >= options_.open_handles) return refuse(ENFILE);
  Node* node = table_.find(id);
  if (node == nullptr) return refuse(ESTALE);
  if (S_ISDIR(node->type)) return refuse(EISDIR);
  if (S_ISLNK(node->type)) return refuse(ELOOP);
  if (!S_ISREG(node->type)) return refuse(EACCES);
  auto path = hold(id);
  if (!path) return refuse(path.error());
  auto fd = reopen((*path)->get(), open_flags(flags));
  if (!fd) return refuse(fd.error());
  auto now = examine(fd->get(), "", AT_EMPTY_PATH);
  if (!now) return refuse(now.error());
  const Stamp stamp = now->stamp();
  const bool truncated = (flags & O_TRUNC) != 0;
  Opened out;
  out.keep_cache = !truncated && stamp == node->cached && !recently(stamp.ctime_ns);
  node->cached = stamp;
  if (truncated) own_content_change(*node, node->told, stamp);
  auto added = add_handle(*node, std::move(*fd), false, (flags & O_APPEND) != 0);
  if (!added) return refuse(added.error());
  out.handle = *added;
  return out;
}

Outcome<Created> Tree::create(NodeId parent, const Name& name, uint32_t flags, uint32_t mode) {
  auto directory = directory_to_change(parent);
  if (!directory) return refuse(directory.error());
  if (handles_.size() >= options_.open_handles) return refuse(ENFILE);
  const int at = (*directory)->get();
  Fd fd(
      ::openat(at, name.c_str(), open_flags(flags) | O_CREAT | O_EXCL | O_NOFOLLOW, mode & 0777U));
  if (!fd) {
    if (errno != EEXIST || (flags & O_EXCL) != 0) return refuse(errno);
    return open_existing(at, parent, name, flags);
  }
  auto now = examine(fd.get(), "", AT_EMPTY_PATH);
  if (!now) return refuse(now.error());
  own_change(parent);
  auto entry = enter(*now, parent, name);
  if (!entry) return refuse(entry.error());
  Node& node = *table_.find(entry->node);
  node.cached = now->stamp();
  node.own_change_ns = wall_now_ns();
  auto added = add_handle(node, std::move(fd), false, (flags & O_APPEND) != 0);
  if (!added) return refuse(added.error());
  return Created{*entry, *added};
}

// CREATE for a file that the guest did not know to exist.
Outcome<Created> Tree::open_existing(int directory, NodeId parent, const Name& name,
                                     uint32_t flags) {
  auto entry = answer(directory, parent, name);
  if (!entry) return refuse(entry.error());
  auto opened = open_file(entry->node, flags & ~static_cast<uint32_t>(O_CREAT));
  if (!opened) {
    forget(entry->node, 1);  // the guest never learns of it
    return refuse(opened.error());
  }
  if ((flags & O_TRUNC) != 0)
    if (auto now = examine(handles_.at(opened->handle).fd->get(), "", AT_EMPTY_PATH); now)
      entry->attributes = *now;
  return Created{*entry, opened->handle};
}

Outcome<HandleId> Tree::open_directory(NodeId id) {
  if (handles_.size() >= options_.open_handles) return refuse(ENFILE);
  auto path = hold_directory(id);
  if (!path) return refuse(path.error());
  watch(id, (*path)->get());
  auto fd = reopen((*path)->get(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  if (!fd) return refuse(fd.error());
  return add_handle(*table_.find(id), std::move(*fd), true, false);
}

void Tree::release(HandleId id) {
  const auto it = handles_.find(id);
  if (it == handles_.end()) return;
  if (Node* node = table_.find(it->second.node)) std::erase(node->handles, id);
  handles_.erase(it);
}

Outcome<size_t> Tree::read(NodeId node, HandleId id, uint64_t offset, std::span<uint8_t> out) {
  auto opened = handle(node, id, false);
  if (!opened) return refuse(opened.error());
  if (!fits_offset(offset, out.size())) return refuse(EINVAL);
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread((*opened)->fd->get(), out.data() + done, out.size() - done,
                              static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && done == 0) return refuse(errno);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

namespace {

// Takes O_APPEND off a descriptor for one write: with it, Linux appends whatever offset pwrite
// names.
class WithoutAppend {
 public:
  WithoutAppend(int fd, bool needed) : fd_(needed ? fd : -1) {
    if (fd_ < 0) return;
    flags_ = ::fcntl(fd_, F_GETFL);
    (void)::fcntl(fd_, F_SETFL, flags_ & ~O_APPEND);
  }
  ~WithoutAppend() {
    if (fd_ >= 0) (void)::fcntl(fd_, F_SETFL, flags_);
  }
  WithoutAppend(const WithoutAppend&) = delete;
  WithoutAppend& operator=(const WithoutAppend&) = delete;

 private:
  int fd_;
  int flags_ = 0;
};

}  // namespace

Outcome<size_t> Tree::write(NodeId node_id, HandleId id, uint64_t offset, ByteView data,
                            bool from_cache) {
  auto opened = handle_to_change(node_id, id);
  if (!opened) return refuse(opened.error());
  if (!fits_offset(offset, data.size())) return refuse(EFBIG);
  const int fd = (*opened)->fd->get();
  auto before = examine(fd, "", AT_EMPTY_PATH);
  if (!before) return refuse(before.error());
  const WithoutAppend at_offset(fd, from_cache && (*opened)->append);
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n =
        ::pwrite(fd, data.data() + done, data.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && done == 0) return refuse(errno);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  note_own_write(node_id, fd, *before);
  return done;
}

void Tree::note_own_write(NodeId id, int fd, const Attributes& before) {
  Node* node = table_.find(id);
  if (node == nullptr) return;
  if (auto after = examine(fd, "", AT_EMPTY_PATH))
    own_content_change(*node, before.stamp(), after->stamp());
}

// A rename changes the ctime of what it moves.
void Tree::note_own_move(int directory, NodeId parent, const Name& name,
                         const Outcome<Attributes>& before) {
  Node* node = table_.child(parent, name.view());
  if (node == nullptr || !before) return;
  if (auto after = examine(directory, name.c_str(), 0))
    own_content_change(*node, before->stamp(), after->stamp());
}

Outcome<void> Tree::sync(NodeId node, HandleId id, bool data_only) {
  const auto it = handles_.find(id);
  if (it == handles_.end() || it->second.node != node) return refuse(EBADF);
  const int fd = it->second.fd->get();
  return outcome_of(data_only ? ::fdatasync(fd) : ::fsync(fd));
}

Outcome<void> Tree::allocate(NodeId node, HandleId id, uint64_t offset, uint64_t length,
                             uint32_t mode) {
  auto opened = handle_to_change(node, id);
  if (!opened) return refuse(opened.error());
  constexpr uint32_t kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  if ((mode & ~kKnown) != 0) return refuse(EOPNOTSUPP);
  if (!fits_offset(offset, length)) return refuse(EFBIG);
  const int fd = (*opened)->fd->get();
  auto before = examine(fd, "", AT_EMPTY_PATH);
  if (!before) return refuse(before.error());
  if (::fallocate(fd, static_cast<int>(mode), static_cast<off_t>(offset),
                  static_cast<off_t>(length)) < 0)
    return refuse(errno);
  note_own_write(node, fd, *before);
  return {};
}

Outcome<uint64_t> Tree::seek(NodeId node, HandleId id, uint64_t offset, uint32_t whence) {
  auto opened = handle(node, id, false);
  if (!opened) return refuse(opened.error());
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return refuse(EINVAL);
  if (!fits_offset(offset, 0)) return refuse(EINVAL);
  const off_t at =
      ::lseek((*opened)->fd->get(), static_cast<off_t>(offset), static_cast<int>(whence));
  if (at < 0) return refuse(errno);
  return static_cast<uint64_t>(at);
}

Outcome<size_t> Tree::copy_range(NodeId from, HandleId from_id, uint64_t from_offset, NodeId to,
                                 HandleId to_id, uint64_t to_offset, uint64_t length) {
  auto source = handle(from, from_id, false);
  if (!source) return refuse(source.error());
  auto target = handle_to_change(to, to_id);
  if (!target) return refuse(target.error());
  if ((*target)->append) return refuse(EBADF);
  length = std::min<uint64_t>(length, kMostCopy);
  if (!fits_offset(from_offset, length) || !fits_offset(to_offset, length)) return refuse(EINVAL);
  const int fd = (*target)->fd->get();
  auto before = examine(fd, "", AT_EMPTY_PATH);
  if (!before) return refuse(before.error());
  auto in = static_cast<off_t>(from_offset);
  auto out = static_cast<off_t>(to_offset);
  const ssize_t n = ::copy_file_range((*source)->fd->get(), &in, fd, &out, length, 0);
  if (n < 0) return refuse(errno);
  note_own_write(to, fd, *before);
  return static_cast<size_t>(n);
}

// ---- directory listings

Outcome<void> Tree::seek_listing(Handle& listing, uint64_t offset) {
  if (offset == listing.next_offset && offset != 0) return {};
  if (!fits_offset(offset, 0)) return refuse(EINVAL);
  if (::lseek(listing.fd->get(), static_cast<off_t>(offset), SEEK_SET) < 0) return refuse(errno);
  listing.names.clear();
  listing.at = 0;
  listing.next_offset = offset;
  return {};
}

Outcome<bool> Tree::next_name(Handle& listing, ListedName& out) {
  if (listing.at >= listing.names.size()) {
    listing.names.resize(kListingBuffer);
    listing.at = 0;
    const long n =
        ::syscall(SYS_getdents64, listing.fd->get(), listing.names.data(), listing.names.size());
    const int error = errno;
    listing.names.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (n < 0) return refuse(error);
    if (n == 0) return false;
  }
  // struct linux_dirent64: u64 inode, s64 offset, u16 record length, u8 type, name and NUL.
  constexpr size_t kNameAt = 19;
  const uint8_t* record = listing.names.data() + listing.at;
  uint16_t length = 0;
  std::memcpy(&out.inode, record, 8);
  std::memcpy(&out.next_offset, record + 8, 8);
  std::memcpy(&length, record + 16, 2);
  out.type = record[18];
  const auto* name = reinterpret_cast<const char*>(record + kNameAt);
  out.name = std::string_view(name, ::strnlen(name, length - kNameAt));
  out.record = length;
  return true;
}

Outcome<Tree::Space> Tree::space() {
  struct statfs raw {};
  if (::fstatfs(root_->get(), &raw) < 0) return refuse(errno);
  Space out{};
  out.blocks = raw.f_blocks;
  out.free = raw.f_bfree;
  out.available = raw.f_bavail;
  out.files = raw.f_files;
  out.files_free = raw.f_ffree;
  out.block_size = static_cast<uint32_t>(raw.f_bsize);
  out.name_length = static_cast<uint32_t>(std::min<long>(raw.f_namelen, 255));
  out.fragment_size = static_cast<uint32_t>(raw.f_frsize);
  return out;
}

// ---- changes of the host

void Tree::watch(NodeId id, int fd) {
  Node* directory = table_.find(id);
  if (!inotify_ || directory == nullptr || directory->watch >= 0) return;
  if (watched_.size() >= options_.watches) return;
  const std::string path = "/proc/self/fd/" + number(fd);
  const int wd = ::inotify_add_watch(inotify_.get(), path.c_str(), kWatchMask);
  if (wd < 0) return;
  directory->watch = wd;
  watched_[wd] = id;
}

void Tree::compare(Node& node, const Attributes& now, bool modified,
                   std::vector<Invalidation>& out) {
  const Stamp stamp = now.stamp();
  // The same stamp may hide a second change within one tick of the clock, unless it was the guest's
  // own.
  const bool hidden = modified && recently(stamp.ctime_ns) && !recently(node.own_change_ns);
  if (stamp == node.told && !hidden) return;
  node.told = stamp;
  Invalidation change;
  change.kind = S_ISREG(node.type) ? Invalidation::Kind::kContent : Invalidation::Kind::kAttributes;
  change.node = node.id;
  out.push_back(std::move(change));
}

void Tree::compare_directory(NodeId id, std::vector<Invalidation>& out) {
  Node* directory = table_.find(id);
  if (directory == nullptr) return;
  if (auto now = examine_node(*directory, std::nullopt)) compare(*directory, *now, false, out);
}

void Tree::host_changed(NodeId id, std::string_view name, bool modified,
                        std::vector<Invalidation>& out) {
  if (!modified || name.empty()) compare_directory(id, out);
  if (name.empty()) return;
  auto directory = hold_directory(id);
  if (!directory) return;
  auto now = examine((*directory)->get(), std::string(name).c_str(), 0);
  Node* child = table_.child(id, name);
  if (child != nullptr && now && now->key == child->key) {
    compare(*child, *now, modified, out);
    return;
  }
  if (child != nullptr) host_took_name(*child, id, name, out);
  // What came may be what left another name: a process inside that stands in it stays there.
  if (now) table_.adopt_name(now->key, id, name);
}

// Another file, or none, has the name now.
void Tree::host_took_name(const Node& child, NodeId parent, std::string_view name,
                          std::vector<Invalidation>& out) {
  // What was below it may have left the share: open descriptors are let go.
  if (S_ISDIR(child.type)) cache_.clear();
  out.push_back(Invalidation{Invalidation::Kind::kAttributes, child.id, {}});
  out.push_back(Invalidation{Invalidation::Kind::kEntry, parent, std::string(name)});
  table_.remove_name(parent, name);
}

// Events were lost: every node is compared, which is slow and rare.
void Tree::compare_everything(std::vector<Invalidation>& out) {
  std::vector<std::pair<NodeId, std::string>> names;
  table_.for_each([&names](const Node& node) {
    for (const Link& link : node.links) names.emplace_back(link.parent, link.name);
  });
  for (const auto& [parent, name] : names) host_changed(parent, name, true, out);
  for (const auto& [wd, id] : std::unordered_map<int, NodeId>(watched_)) compare_directory(id, out);
}

void Tree::read_changes(std::vector<Invalidation>& out) {
  alignas(inotify_event) std::array<char, 65536> buffer;
  const ssize_t n = ::read(inotify_.get(), buffer.data(), buffer.size());
  for (size_t at = 0; n > 0 && at + sizeof(inotify_event) <= static_cast<size_t>(n);) {
    inotify_event event{};
    std::memcpy(&event, buffer.data() + at, sizeof event);
    const char* text = buffer.data() + at + sizeof event;
    const std::string_view name(text, ::strnlen(text, event.len));
    at += sizeof event + event.len;
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      compare_everything(out);
      continue;
    }
    const auto watched = watched_.find(event.wd);
    if (watched == watched_.end()) continue;
    const NodeId id = watched->second;
    if ((event.mask & IN_IGNORED) != 0) {
      if (Node* node = table_.find(id)) node->watch = -1;
      watched_.erase(watched);
      continue;
    }
    host_changed(id, name, (event.mask & (IN_MODIFY | IN_ATTRIB)) != 0, out);
  }
}

}  // namespace sandbox::files
