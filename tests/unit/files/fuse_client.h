#pragma once
// The guest kernel's part of the protocol, as far as tests need it: requests as raw bytes, replies
// taken apart. It checks of each reply that its header is right.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "files/server.h"
#include "unit/files/temp_tree.h"

namespace sandbox::files {

struct Reply {
  int error = 0;  // positive errno
  Bytes body;
  template <class T>
  [[nodiscard]] T as(size_t at = 0) const {
    T out{};
    EXPECT_GE(body.size(), at + sizeof out);
    if (body.size() >= at + sizeof out) std::memcpy(&out, body.data() + at, sizeof out);
    return out;
  }
  [[nodiscard]] std::string text() const { return std::string(body.begin(), body.end()); }
};

template <class T>
Bytes bytes_of(const T& value) {
  Bytes out(sizeof value);
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline Bytes text_bytes(std::string_view text) {
  return Bytes(text.begin(), text.end());
}
inline Bytes name_bytes(std::string_view text) {
  Bytes out(text.begin(), text.end());
  out.push_back(0);
  return out;
}

class FuseClient {
 public:
  FuseClient(const std::string& path, const TreeOptions& options) {
    auto tree = Tree::open(path, options);
    EXPECT_TRUE(tree.has_value());
    server_ = std::make_unique<Server>(std::move(*tree));
  }

  Server& server() { return *server_; }
  Tree& tree() { return server_->tree(); }

  static Bytes request(uint32_t opcode, uint64_t node, const Bytes& body, uint64_t unique = 77) {
    fuse_in_header header{};
    header.len = static_cast<uint32_t>(sizeof header + body.size());
    header.opcode = opcode;
    header.unique = unique;
    header.nodeid = node;
    return bytes_of(header) + body;
  }

  Reply call(uint32_t opcode, uint64_t node, const Bytes& body = {}) {
    const uint64_t unique = ++unique_;
    Bytes out;
    EXPECT_TRUE(server_->handle(request(opcode, node, body, unique), out).has_value());
    Reply reply;
    fuse_out_header header{};
    EXPECT_GE(out.size(), sizeof header);
    if (out.size() < sizeof header) return reply;
    std::memcpy(&header, out.data(), sizeof header);
    EXPECT_EQ(header.len, out.size());
    EXPECT_EQ(header.unique, unique);
    EXPECT_LE(header.error, 0);
    reply.error = -header.error;
    reply.body.assign(out.begin() + sizeof header, out.end());
    EXPECT_TRUE(reply.error == 0 || reply.body.empty());
    return reply;
  }

  // Requests without a reply.
  void tell(uint32_t opcode, uint64_t node, const Bytes& body) {
    Bytes out;
    EXPECT_TRUE(server_->handle(request(opcode, node, body), out).has_value());
    EXPECT_TRUE(out.empty());
  }

  Reply init(uint32_t minor = 41, uint32_t flags = 0xFFFFFFFF) {
    fuse_init_in in{};
    in.major = FUSE_KERNEL_VERSION;
    in.minor = minor;
    in.max_readahead = 131072;
    in.flags = flags;
    return call(FUSE_INIT, 0, bytes_of(in));
  }

  Reply look_up(uint64_t parent, std::string_view name) {
    return call(FUSE_LOOKUP, parent, name_bytes(name));
  }
  // The node of a path below the root, which must exist.
  uint64_t node(std::string_view path) {
    uint64_t at = kRootNode;
    while (!path.empty()) {
      const size_t slash = path.find('/');
      const Reply reply = look_up(at, path.substr(0, slash));
      EXPECT_EQ(reply.error, 0) << path;
      if (reply.error != 0) return 0;
      at = reply.as<fuse_entry_out>().nodeid;
      path = slash == std::string_view::npos ? "" : path.substr(slash + 1);
    }
    return at;
  }
  Reply get_attributes(uint64_t node_id) {
    return call(FUSE_GETATTR, node_id, bytes_of(fuse_getattr_in{}));
  }
  fuse_attr attributes(uint64_t node_id) {
    const Reply reply = get_attributes(node_id);
    EXPECT_EQ(reply.error, 0);
    return reply.as<fuse_attr_out>().attr;
  }

  static Bytes open_body(uint32_t flags) {
    fuse_open_in in{};
    in.flags = flags;
    return bytes_of(in);
  }
  Reply open(uint64_t node_id, uint32_t flags) {
    return call(FUSE_OPEN, node_id, open_body(flags));
  }
  Reply create(uint64_t parent, std::string_view name, uint32_t flags, uint32_t mode) {
    fuse_create_in in{};
    in.flags = flags | O_CREAT;
    in.mode = mode | S_IFREG;
    return call(FUSE_CREATE, parent, bytes_of(in) + name_bytes(name));
  }
  static uint64_t handle_of(const Reply& opened) { return opened.as<fuse_open_out>().fh; }
  static uint64_t created_handle(const Reply& created) {
    return created.as<fuse_open_out>(sizeof(fuse_entry_out)).fh;
  }

  static Bytes read_body(uint64_t handle, uint64_t offset, uint32_t size) {
    fuse_read_in in{};
    in.fh = handle;
    in.offset = offset;
    in.size = size;
    return bytes_of(in);
  }
  Reply read(uint64_t node_id, uint64_t handle, uint64_t offset, uint32_t size) {
    return call(FUSE_READ, node_id, read_body(handle, offset, size));
  }
  static Bytes write_body(uint64_t handle, uint64_t offset, const Bytes& data, uint32_t flags = 0) {
    fuse_write_in in{};
    in.fh = handle;
    in.offset = offset;
    in.size = static_cast<uint32_t>(data.size());
    in.write_flags = flags;
    return bytes_of(in) + data;
  }
  Reply write(uint64_t node_id, uint64_t handle, uint64_t offset, std::string_view data,
              uint32_t flags = 0) {
    return call(FUSE_WRITE, node_id, write_body(handle, offset, text_bytes(data), flags));
  }
  Reply release(uint64_t node_id, uint64_t handle) {
    fuse_release_in in{};
    in.fh = handle;
    return call(FUSE_RELEASE, node_id, bytes_of(in));
  }

  Reply make_directory(uint64_t parent, std::string_view name, uint32_t mode = 0755) {
    fuse_mkdir_in in{};
    in.mode = mode;
    return call(FUSE_MKDIR, parent, bytes_of(in) + name_bytes(name));
  }
  Reply make_node(uint64_t parent, std::string_view name, uint32_t mode, uint32_t device = 0) {
    fuse_mknod_in in{};
    in.mode = mode;
    in.rdev = device;
    return call(FUSE_MKNOD, parent, bytes_of(in) + name_bytes(name));
  }
  Reply make_symlink(uint64_t parent, std::string_view name, std::string_view target) {
    return call(FUSE_SYMLINK, parent, name_bytes(name) + name_bytes(target));
  }
  Reply make_link(uint64_t old, uint64_t parent, std::string_view name) {
    fuse_link_in in{};
    in.oldnodeid = old;
    return call(FUSE_LINK, parent, bytes_of(in) + name_bytes(name));
  }
  Reply rename(uint64_t from, std::string_view from_name, uint64_t to, std::string_view to_name,
               uint32_t flags = 0) {
    fuse_rename2_in in{};
    in.newdir = to;
    in.flags = flags;
    return call(FUSE_RENAME2, from, bytes_of(in) + name_bytes(from_name) + name_bytes(to_name));
  }
  Reply set_attributes(uint64_t node_id, const fuse_setattr_in& in) {
    return call(FUSE_SETATTR, node_id, bytes_of(in));
  }
  Reply set_mode(uint64_t node_id, uint32_t mode) {
    fuse_setattr_in in{};
    in.valid = FATTR_MODE;
    in.mode = mode;
    return set_attributes(node_id, in);
  }
  Reply set_size(uint64_t node_id, uint64_t size) {
    fuse_setattr_in in{};
    in.valid = FATTR_SIZE;
    in.size = size;
    return set_attributes(node_id, in);
  }
  void forget(uint64_t node_id, uint64_t count) {
    fuse_forget_in in{};
    in.nlookup = count;
    tell(FUSE_FORGET, node_id, bytes_of(in));
  }

  struct Listed {
    std::string name;
    uint64_t node = 0;  // READDIRPLUS only
    uint32_t type = 0;
    uint64_t offset = 0;
  };
  // A whole directory, in replies of `size` bytes.
  std::vector<Listed> list(uint64_t node_id, bool plus, uint32_t size = 4096) {
    const Reply opened = call(FUSE_OPENDIR, node_id, open_body(O_RDONLY));
    EXPECT_EQ(opened.error, 0);
    std::vector<Listed> out;
    uint64_t offset = 0;
    while (true) {
      const Reply reply = call(plus ? FUSE_READDIRPLUS : FUSE_READDIR, node_id,
                               read_body(handle_of(opened), offset, size));
      EXPECT_EQ(reply.error, 0);
      EXPECT_LE(reply.body.size(), size);
      if (reply.error != 0 || reply.body.empty()) break;
      take_apart(reply, plus, out);
      offset = out.back().offset;
    }
    fuse_release_in in{};
    in.fh = handle_of(opened);
    EXPECT_EQ(call(FUSE_RELEASEDIR, node_id, bytes_of(in)).error, 0);
    return out;
  }

 private:
  static void take_apart(const Reply& reply, bool plus, std::vector<Listed>& out) {
    for (size_t at = 0; at < reply.body.size();) {
      Listed one;
      if (plus) {
        one.node = reply.as<fuse_entry_out>(at).nodeid;
        at += sizeof(fuse_entry_out);
      }
      fuse_dirent entry{};
      std::memcpy(&entry, reply.body.data() + at, FUSE_NAME_OFFSET);
      one.name.assign(reinterpret_cast<const char*>(reply.body.data()) + at + FUSE_NAME_OFFSET,
                      entry.namelen);
      one.type = entry.type;
      one.offset = entry.off;
      out.push_back(one);
      at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + entry.namelen);
    }
  }

  std::unique_ptr<Server> server_;
  uint64_t unique_ = 100;
};

}  // namespace sandbox::files
