#include "files/server.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "files/transport.h"

namespace sandbox::files {

namespace {

constexpr uint32_t kOldestMinor = 31;
constexpr uint32_t kOurMinor = 38;

// Requests the guest kernel may have outstanding at once in the background (read-ahead, releases).
constexpr uint16_t kMaxBackground = 64;
constexpr uint32_t kMaxReadahead = 1U << 20;

constexpr uint32_t kOffered = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
                              FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
                              FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS;

template <class T>
void append(Bytes& out, const T& value) {
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

fuse_attr encode(const Attributes& a) {
  fuse_attr out{};
  out.ino = a.inode;
  out.size = a.size;
  out.blocks = a.blocks;
  out.atime = static_cast<uint64_t>(a.atime.seconds);
  out.mtime = static_cast<uint64_t>(a.mtime.seconds);
  out.ctime = static_cast<uint64_t>(a.ctime.seconds);
  out.atimensec = a.atime.nanoseconds;
  out.mtimensec = a.mtime.nanoseconds;
  out.ctimensec = a.ctime.nanoseconds;
  out.mode = a.mode;
  out.nlink = a.links;
  out.uid = a.uid;
  out.gid = a.gid;
  out.blksize = a.block_size;
  return out;
}

uint64_t seconds_valid(Freshness f) {
  return f == Freshness::kWatched ? kCacheSeconds : 0;
}

fuse_entry_out encode(const Entry& e) {
  fuse_entry_out out{};
  out.nodeid = e.node;
  out.entry_valid = seconds_valid(e.name_freshness);
  out.attr_valid = seconds_valid(e.freshness);
  out.attr = encode(e.attributes);
  return out;
}

fuse_attr_out encode(const AttributesReply& a) {
  fuse_attr_out out{};
  out.attr_valid = seconds_valid(a.freshness);
  out.attr = encode(a.attributes);
  return out;
}

// One record of a listing: the header of READDIRPLUS if there is one, then the entry and its name,
// padded to eight bytes.
void append_listed(Bytes& out, const fuse_entry_out* plus, const ListedName& listed) {
  if (plus != nullptr) append(out, *plus);
  fuse_dirent entry{};
  entry.ino = listed.inode;
  entry.off = listed.next_offset;
  entry.namelen = static_cast<uint32_t>(listed.name.size());
  entry.type = listed.type;
  const size_t at = out.size();
  out.resize(at + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + listed.name.size()));
  std::memcpy(out.data() + at, &entry, FUSE_NAME_OFFSET);
  std::memcpy(out.data() + at + FUSE_NAME_OFFSET, listed.name.data(), listed.name.size());
}

size_t listed_size(bool plus, std::string_view name) {
  return (plus ? sizeof(fuse_entry_out) : 0) + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name.size());
}

}  // namespace

// ---- one request

class Server::Request {
 public:
  Request(const fuse_in_header& header, ByteView body, Bytes& out)
      : header_(header), body_(body), out_(out) {}

  [[nodiscard]] NodeId node() const { return header_.nodeid; }
  [[nodiscard]] uint32_t opcode() const { return header_.opcode; }
  [[nodiscard]] Bytes& out() { return out_; }
  [[nodiscard]] const std::string& fault() const { return fault_; }

  // The next part of the body; a short body leaves zeros and makes the request invalid.
  template <class T>
  bool take(T& part) {
    const ByteView bytes = body_.take(sizeof part);
    if (!body_.ok()) {
      fault_ = "a short body";
      return false;
    }
    std::memcpy(&part, bytes.data(), sizeof part);
    return true;
  }

  Outcome<Name> name() {
    auto text = terminated();
    if (!text) return refuse(text.error());
    auto parsed = Name::parse(*text);
    if (!parsed && parsed.error().value == EINVAL)
      fault_ = "the name '" + escape_terminal(text->substr(0, 255)) + "'";
    return parsed;
  }

  // Up to a NUL, which must be there.
  Outcome<std::string_view> terminated() {
    ByteReader look = body_;
    const std::string_view rest = as_text(look.rest());
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) {
      fault_ = "a name without an end";
      return refuse(EINVAL);
    }
    body_.skip(end + 1);
    return rest.substr(0, end);
  }

  ByteView take_bytes(size_t count) { return body_.take(count); }
  [[nodiscard]] bool whole() const { return body_.done(); }
  [[nodiscard]] size_t remaining() const { return body_.remaining(); }

  template <class T>
  Outcome<void> reply(const T& part) {
    append(out_, part);
    return {};
  }

 private:
  const fuse_in_header& header_;
  ByteReader body_;
  Bytes& out_;
  std::string fault_;
};

Server::Server(std::unique_ptr<Tree> tree) : tree_(std::move(tree)) {}
Server::~Server() = default;

void Server::on_refusal(std::function<void(std::string_view, std::string_view)> call) {
  on_refusal_ = std::move(call);
}

const Server::Handler Server::kHandlers[] = {
    {FUSE_LOOKUP, "lookup", &Server::look_up},
    {FUSE_GETATTR, "getattr", &Server::get_attributes},
    {FUSE_SETATTR, "setattr", &Server::set_attributes},
    {FUSE_READLINK, "readlink", &Server::read_link},
    {FUSE_SYMLINK, "symlink", &Server::make_symlink},
    {FUSE_MKNOD, "mknod", &Server::make_node},
    {FUSE_MKDIR, "mkdir", &Server::make_directory},
    {FUSE_UNLINK, "unlink", &Server::unlink},
    {FUSE_RMDIR, "rmdir", &Server::remove_directory},
    {FUSE_RENAME, "rename", &Server::rename},
    {FUSE_LINK, "link", &Server::make_link},
    {FUSE_OPEN, "open", &Server::open},
    {FUSE_READ, "read", &Server::read},
    {FUSE_WRITE, "write", &Server::write},
    {FUSE_STATFS, "statfs", &Server::space},
    {FUSE_RELEASE, "release", &Server::release},
    {FUSE_FSYNC, "fsync", &Server::sync},
    {FUSE_SETXATTR, "setxattr", &Server::refuse_xattr_change},
    {FUSE_REMOVEXATTR, "removexattr", &Server::refuse_xattr_change},
    {FUSE_INIT, "init", &Server::init},
    {FUSE_OPENDIR, "opendir", &Server::open_directory},
    {FUSE_READDIR, "readdir", &Server::read_directory},
    {FUSE_RELEASEDIR, "releasedir", &Server::release},
    {FUSE_FSYNCDIR, "fsyncdir", &Server::sync},
    {FUSE_CREATE, "create", &Server::create},
    {FUSE_DESTROY, "destroy", &Server::destroy},
    {FUSE_FALLOCATE, "fallocate", &Server::allocate},
    {FUSE_READDIRPLUS, "readdirplus", &Server::read_directory_plus},
    {FUSE_RENAME2, "rename2", &Server::rename2},
    {FUSE_LSEEK, "lseek", &Server::seek},
    {FUSE_COPY_FILE_RANGE, "copy_file_range", &Server::copy_range},
};

const Server::Handler* Server::find_handler(uint32_t opcode) {
  for (const Handler& handler : kHandlers)
    if (handler.opcode == opcode) return &handler;
  return nullptr;
}

void Server::report(std::string_view operation, std::string_view detail) {
  if (on_refusal_) on_refusal_(operation, detail);
}

Status Server::handle(ByteView request, Bytes& out) {
  fuse_in_header header{};
  if (request.size() < sizeof header)
    return fail(Code::kProtocol, "a FUSE request of {} bytes has no header", request.size());
  std::memcpy(&header, request.data(), sizeof header);
  if (header.len != request.size())
    return fail(Code::kProtocol, "a FUSE request of {} bytes claims {}", request.size(),
                header.len);
  if (header.unique == 0) return fail(Code::kProtocol, "a FUSE request without a number");

  const size_t start = out.size();
  Request r(header, request.subspan(sizeof header), out);
  if (header.opcode == FUSE_FORGET) return forget(r), Status{};
  if (header.opcode == FUSE_BATCH_FORGET) return forget_many(r), Status{};
  if (header.opcode == FUSE_INTERRUPT || header.opcode == FUSE_NOTIFY_REPLY) return {};

  out.resize(start + sizeof(fuse_out_header));
  const Handler* handler = find_handler(header.opcode);
  Outcome<void> done = refuse(ENOSYS);
  if (!initialized_ && header.opcode != FUSE_INIT) {
    done = refuse(EIO);
  } else if (handler != nullptr) {
    done = (this->*handler->operation)(r);
    if (!r.fault().empty()) report(handler->name, r.fault());
  }
  fuse_out_header reply{};
  if (!done) {
    out.resize(start + sizeof reply);
    reply.error = -done.error().value;
  }
  reply.len = static_cast<uint32_t>(out.size() - start);
  reply.unique = header.unique;
  std::memcpy(out.data() + start, &reply, sizeof reply);
  return {};
}

// ---- the life of a mount

Outcome<void> Server::init(Request& r) {
  // Kernels before 7.36 send the first four numbers alone.
  struct Head {
    uint32_t major, minor, max_readahead, flags;
  } in{};
  if (!r.take(in)) return refuse(EINVAL);
  if (in.major < FUSE_KERNEL_VERSION) return refuse(EPROTO);
  if (in.major == FUSE_KERNEL_VERSION && in.minor < kOldestMinor) return refuse(EPROTO);
  tree_->reset();
  initialized_ =
      in.major == FUSE_KERNEL_VERSION;  // a newer major asks again after it has seen ours
  fuse_init_out out{};
  out.major = FUSE_KERNEL_VERSION;
  out.minor = kOurMinor;
  out.max_readahead = std::min(in.max_readahead, kMaxReadahead);
  out.flags = in.flags & kOffered;
  out.max_background = kMaxBackground;
  out.congestion_threshold = kMaxBackground * 3 / 4;
  out.max_write = kMaxData;
  out.time_gran = 1;
  out.max_pages = kMaxData / 4096;
  return r.reply(out);
}

Outcome<void> Server::destroy(Request&) {
  tree_->reset();
  initialized_ = false;
  return {};
}

void Server::forget(Request& r) {
  fuse_forget_in in{};
  if (r.take(in)) tree_->forget(r.node(), in.nlookup);
}

void Server::forget_many(Request& r) {
  fuse_batch_forget_in in{};
  if (!r.take(in)) return;
  // The count is the guest's word; the loop ends with the bytes.
  fuse_forget_one one{};
  for (uint32_t i = 0; i < in.count && r.take(one); ++i) tree_->forget(one.nodeid, one.nlookup);
}

// ---- names and attributes

Outcome<void> Server::look_up(Request& r) {
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  auto entry = tree_->look_up(r.node(), *name);
  if (!entry) return refuse(entry.error());
  return r.reply(encode(*entry));
}

Outcome<void> Server::get_attributes(Request& r) {
  fuse_getattr_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  std::optional<HandleId> handle;
  if ((in.getattr_flags & FUSE_GETATTR_FH) != 0) handle = in.fh;
  auto now = tree_->attributes(r.node(), handle);
  if (!now) return refuse(now.error());
  return r.reply(encode(*now));
}

namespace {

NewTime new_time(const fuse_setattr_in& in, uint32_t set, uint32_t now, uint64_t seconds,
                 uint32_t nanoseconds) {
  NewTime out;
  if ((in.valid & set) == 0) return out;
  out.kind = (in.valid & now) != 0 ? NewTime::Kind::kNow : NewTime::Kind::kSet;
  out.time = {static_cast<int64_t>(seconds), nanoseconds};
  return out;
}

}  // namespace

Outcome<void> Server::set_attributes(Request& r) {
  fuse_setattr_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  AttributeChange change;
  if ((in.valid & FATTR_MODE) != 0) change.mode = in.mode;
  if ((in.valid & FATTR_UID) != 0) change.uid = in.uid;
  if ((in.valid & FATTR_GID) != 0) change.gid = in.gid;
  if ((in.valid & FATTR_SIZE) != 0) change.size = in.size;
  change.atime = new_time(in, FATTR_ATIME, FATTR_ATIME_NOW, in.atime, in.atimensec);
  change.mtime = new_time(in, FATTR_MTIME, FATTR_MTIME_NOW, in.mtime, in.mtimensec);
  std::optional<HandleId> handle;
  if ((in.valid & FATTR_FH) != 0) handle = in.fh;
  auto now = tree_->change(r.node(), handle, change);
  if (!now) return refuse(now.error());
  return r.reply(encode(*now));
}

Outcome<void> Server::read_link(Request& r) {
  auto target = tree_->read_link(r.node());
  if (!target) return refuse(target.error());
  const ByteView bytes = as_bytes(*target);
  r.out().insert(r.out().end(), bytes.begin(), bytes.end());
  return {};
}

// ---- making, removing, renaming

Outcome<void> Server::make_symlink(Request& r) {
  auto name = r.name();
  if (!name) return refuse(name.error());
  auto target = r.terminated();
  if (!target) return refuse(target.error());
  if (target->empty() || !r.whole()) return refuse(EINVAL);
  auto entry = tree_->make_symlink(r.node(), *name, std::string(*target));
  if (!entry) return refuse(entry.error());
  return r.reply(encode(*entry));
}

Outcome<void> Server::make_node(Request& r) {
  fuse_mknod_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  auto entry = tree_->make_node(r.node(), *name, in.mode);
  if (!entry) {
    if (entry.error().value == EPERM && (S_ISCHR(in.mode) || S_ISBLK(in.mode)))
      report("mknod", "a device named '" + escape_terminal(name->view()) + "'");
    return refuse(entry.error());
  }
  return r.reply(encode(*entry));
}

Outcome<void> Server::make_directory(Request& r) {
  fuse_mkdir_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  auto entry = tree_->make_directory(r.node(), *name, in.mode);
  if (!entry) return refuse(entry.error());
  return r.reply(encode(*entry));
}

Outcome<void> Server::unlink(Request& r) {
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  return tree_->unlink(r.node(), *name, false);
}

Outcome<void> Server::remove_directory(Request& r) {
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  return tree_->unlink(r.node(), *name, true);
}

Outcome<void> Server::rename(Request& r) {
  fuse_rename_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  return rename_named(r, in.newdir, 0);
}

Outcome<void> Server::rename2(Request& r) {
  fuse_rename2_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  return rename_named(r, in.newdir, in.flags);
}

Outcome<void> Server::rename_named(Request& r, NodeId to, uint32_t flags) {
  auto from_name = r.name();
  if (!from_name) return refuse(from_name.error());
  auto to_name = r.name();
  if (!to_name) return refuse(to_name.error());
  if (!r.whole()) return refuse(EINVAL);
  return tree_->rename(r.node(), *from_name, to, *to_name, flags);
}

Outcome<void> Server::make_link(Request& r) {
  fuse_link_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  auto entry = tree_->make_link(in.oldnodeid, r.node(), *name);
  if (!entry) return refuse(entry.error());
  return r.reply(encode(*entry));
}

// ---- open files

Outcome<void> Server::open(Request& r) {
  fuse_open_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto opened = tree_->open_file(r.node(), in.flags);
  if (!opened) return refuse(opened.error());
  fuse_open_out out{};
  out.fh = opened->handle;
  out.open_flags = opened->keep_cache ? FOPEN_KEEP_CACHE : 0;
  return r.reply(out);
}

Outcome<void> Server::create(Request& r) {
  fuse_create_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto name = r.name();
  if (!name) return refuse(name.error());
  if (!r.whole()) return refuse(EINVAL);
  auto created = tree_->create(r.node(), *name, in.flags, in.mode);
  if (!created) return refuse(created.error());
  append(r.out(), encode(created->entry));
  fuse_open_out out{};
  out.fh = created->handle;
  return r.reply(out);
}

Outcome<void> Server::read(Request& r) {
  fuse_read_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  const size_t size = std::min<size_t>(in.size, kMaxData);
  const size_t at = r.out().size();
  r.out().resize(at + size);
  auto count = tree_->read(r.node(), in.fh, in.offset, std::span(r.out()).subspan(at));
  if (!count) return refuse(count.error());
  r.out().resize(at + *count);
  return {};
}

Outcome<void> Server::write(Request& r) {
  fuse_write_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  if (in.size != r.remaining() || in.size > kMaxData) return refuse(EINVAL);
  const bool from_cache = (in.write_flags & FUSE_WRITE_CACHE) != 0;
  auto count = tree_->write(r.node(), in.fh, in.offset, r.take_bytes(in.size), from_cache);
  if (!count) return refuse(count.error());
  fuse_write_out out{};
  out.size = static_cast<uint32_t>(*count);
  return r.reply(out);
}

Outcome<void> Server::release(Request& r) {
  fuse_release_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  tree_->release(in.fh);
  return {};
}

Outcome<void> Server::sync(Request& r) {
  fuse_fsync_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  return tree_->sync(r.node(), in.fh, (in.fsync_flags & FUSE_FSYNC_FDATASYNC) != 0);
}

Outcome<void> Server::allocate(Request& r) {
  fuse_fallocate_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  return tree_->allocate(r.node(), in.fh, in.offset, in.length, in.mode);
}

Outcome<void> Server::seek(Request& r) {
  fuse_lseek_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto at = tree_->seek(r.node(), in.fh, in.offset, in.whence);
  if (!at) return refuse(at.error());
  return r.reply(fuse_lseek_out{*at});
}

Outcome<void> Server::copy_range(Request& r) {
  fuse_copy_file_range_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  if (in.flags != 0) return refuse(EINVAL);
  auto count = tree_->copy_range(r.node(), in.fh_in, in.off_in, in.nodeid_out, in.fh_out,
                                 in.off_out, in.len);
  if (!count) return refuse(count.error());
  fuse_write_out out{};
  out.size = static_cast<uint32_t>(*count);
  return r.reply(out);
}

Outcome<void> Server::refuse_xattr_change(Request&) {
  return refuse(tree_->read_only() ? EROFS : ENOSYS);
}

// ---- directories

Outcome<void> Server::open_directory(Request& r) {
  fuse_open_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  auto handle = tree_->open_directory(r.node());
  if (!handle) return refuse(handle.error());
  fuse_open_out out{};
  out.fh = *handle;
  return r.reply(out);
}

Outcome<void> Server::read_directory(Request& r) {
  return list(r, false);
}
Outcome<void> Server::read_directory_plus(Request& r) {
  return list(r, true);
}

Outcome<void> Server::list(Request& r, bool plus) {
  fuse_read_in in{};
  if (!r.take(in)) return refuse(EINVAL);
  const size_t end = r.out().size() + std::min<size_t>(in.size, kMaxData);
  return tree_->list(r.node(), in.fh, in.offset, [&](const ListedName& listed) {
    if (r.out().size() + listed_size(plus, listed.name) > end) return false;
    if (!plus) {
      append_listed(r.out(), nullptr, listed);
      return true;
    }
    // Node 0 tells the kernel to look the name up itself if it needs to: for "." and "..", and for
    // what cannot be looked up now.
    fuse_entry_out known{};
    if (auto name = Name::parse(listed.name))
      if (auto entry = tree_->look_up(r.node(), *name)) known = encode(*entry);
    append_listed(r.out(), &known, listed);
    return true;
  });
}

Outcome<void> Server::space(Request& r) {
  auto space = tree_->space();
  if (!space) return refuse(space.error());
  fuse_statfs_out out{};
  out.st.blocks = space->blocks;
  out.st.bfree = space->free;
  out.st.bavail = space->available;
  out.st.files = space->files;
  out.st.ffree = space->files_free;
  out.st.bsize = space->block_size;
  out.st.namelen = space->name_length;
  out.st.frsize = space->fragment_size;
  return r.reply(out);
}

// ---- notifications

void Server::notify(const Invalidation& change, Bytes& out) {
  const size_t start = out.size();
  fuse_out_header header{};
  append(out, header);
  if (change.kind == Invalidation::Kind::kEntry) {
    header.error = FUSE_NOTIFY_INVAL_ENTRY;
    fuse_notify_inval_entry_out body{};
    body.parent = change.node;
    body.namelen = static_cast<uint32_t>(change.name.size());
    append(out, body);
    const ByteView name = as_bytes(change.name);
    out.insert(out.end(), name.begin(), name.end());
    out.push_back(0);
  } else {
    header.error = FUSE_NOTIFY_INVAL_INODE;
    fuse_notify_inval_inode_out body{};
    body.ino = change.node;
    // From 0 with length 0: all pages. A negative offset: attributes alone.
    body.off = change.kind == Invalidation::Kind::kContent ? 0 : -1;
    append(out, body);
  }
  header.len = static_cast<uint32_t>(out.size() - start);
  std::memcpy(out.data() + start, &header, sizeof header);
}

}  // namespace sandbox::files
