#pragma once
// The addresses of every interface of the host, followed through rtnetlink(7). No name rule may
// lead to one of them.
//
// The socket is opened before the process confines itself, since it could not be afterwards.

#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/ip.h"
#include "base/result.h"

namespace sandbox::gateway {

// What one read of rtnetlink messages says; appends addresses of a dump to `out`.
struct AddressMessages {
  enum class End { kNone, kDone, kFailed };  // of the dump under way
  End end = End::kNone;
  bool changed = false;  // a change was announced
};
AddressMessages parse_address_messages(ByteView bytes, std::vector<IpAddress>& out);

class HostAddresses {
 public:
  using Changed = std::function<void(const std::vector<IpAddress>&)>;

  // Opens, subscribes and reads the present addresses.
  static Result<std::unique_ptr<HostAddresses>> create();
  // The second half of that, from a socket which speaks as a subscribed one does.
  static Result<std::unique_ptr<HostAddresses>> read_from(Fd socket);
  [[nodiscard]] const std::vector<IpAddress>& all() const { return addresses_; }
  // From now on `changed` is called with all addresses after each change.
  Status follow(EventLoop& loop, Changed changed);

 private:
  HostAddresses() = default;
  Status request();
  Status read_dump();
  void on_readable();
  AddressMessages::End take_messages(ByteView bytes);

  Fd socket_;
  Changed changed_;
  std::vector<IpAddress> addresses_;
  std::vector<IpAddress> dump_;  // of the dump under way
  bool dumping_ = false;
  bool stale_ = false;  // a change came while dumping: dump again
};

}  // namespace sandbox::gateway
