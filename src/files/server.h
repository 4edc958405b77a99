#pragma once
// The FUSE protocol of one share: request bytes in, reply bytes out. It knows neither the transport
// nor a path; files are behind Tree.
//
// Theory of operation. The guest kernel sends fuse_in_header and a body whose shape depends on the
// opcode (linux/fuse.h, 7.31 to 7.41; the answer to INIT is 7.38). Each request gets one reply,
// fuse_out_header with an errno or a body, except FORGET, BATCH_FORGET and INTERRUPT, which get
// none. Requests are answered in the order of arrival and at once, so there is never one to
// interrupt.
//
// The guest kernel is hostile. A request whose header does not fit what arrived is a violation and
// ends the wire. Everything after the header is the request's own affair: a short or odd body is
// EINVAL, an unknown node ESTALE, an unknown handle EBADF, an unknown opcode ENOSYS. Before INIT
// everything is EIO.
//
// What is not offered, and why:
//   * Write-back caching: with it the guest kernel trusts its own file sizes and shows host edits
//   cut off.
//   * Locks of any kind: unanswered, the guest kernel keeps them among its own processes, which is
//   all that can share them.
//   * Extended attributes, ioctl, poll, O_TMPFILE, DAX: ENOSYS, after which the kernel stops
//   asking.
//   * ACCESS: the mount uses default_permissions.
//   * FLUSH: data is written through, close has nothing to do.
// Caching: names and attributes for kCacheSeconds in directories that are watched, otherwise not at
// all. Changes of the host are sent as notifications at once; the time limit is for what inotify
// cannot see (writes through a shared mapping, names of a hard link outside the share, another
// machine's writes on a network file system).

#include <functional>
#include <memory>

#include "base/bytes.h"
#include "base/result.h"
#include "files/tree.h"

namespace sandbox::files {

inline constexpr uint64_t kCacheSeconds = 1;

class Server {
 public:
  explicit Server(std::unique_ptr<Tree> tree);
  ~Server();

  // Appends the reply, if one is due, to `out`. An error is a violation of the protocol.
  Status handle(ByteView request, Bytes& out);

  // Appends one notification for a change of the host.
  static void notify(const Invalidation& change, Bytes& out);

  // Called for requests that no correct guest kernel sends: bad names, unknown handles, devices.
  // For the record.
  void on_refusal(std::function<void(std::string_view operation, std::string_view detail)> call);

  [[nodiscard]] Tree& tree() { return *tree_; }
  [[nodiscard]] bool initialized() const { return initialized_; }

 private:
  class Request;
  using Operation = Outcome<void> (Server::*)(Request&);
  struct Handler {
    uint32_t opcode;
    const char* name;
    Operation operation;
  };
  static const Handler kHandlers[];
  static const Handler* find_handler(uint32_t opcode);

  Outcome<void> init(Request& r);
  Outcome<void> destroy(Request& r);
  Outcome<void> look_up(Request& r);
  Outcome<void> get_attributes(Request& r);
  Outcome<void> set_attributes(Request& r);
  Outcome<void> read_link(Request& r);
  Outcome<void> make_symlink(Request& r);
  Outcome<void> make_node(Request& r);
  Outcome<void> make_directory(Request& r);
  Outcome<void> unlink(Request& r);
  Outcome<void> remove_directory(Request& r);
  Outcome<void> rename(Request& r);
  Outcome<void> rename2(Request& r);
  Outcome<void> rename_named(Request& r, NodeId to, uint32_t flags);
  Outcome<void> make_link(Request& r);
  Outcome<void> open(Request& r);
  Outcome<void> create(Request& r);
  Outcome<void> read(Request& r);
  Outcome<void> write(Request& r);
  Outcome<void> release(Request& r);
  Outcome<void> sync(Request& r);
  Outcome<void> open_directory(Request& r);
  Outcome<void> read_directory(Request& r);
  Outcome<void> read_directory_plus(Request& r);
  Outcome<void> list(Request& r, bool plus);
  Outcome<void> space(Request& r);
  Outcome<void> allocate(Request& r);
  Outcome<void> seek(Request& r);
  Outcome<void> copy_range(Request& r);
  Outcome<void> refuse_xattr_change(Request& r);

  void forget(Request& r);
  void forget_many(Request& r);
  void report(std::string_view operation, std::string_view detail);

  std::unique_ptr<Tree> tree_;
  bool initialized_ = false;
  std::function<void(std::string_view, std::string_view)> on_refusal_;
};

}  // namespace sandbox::files
