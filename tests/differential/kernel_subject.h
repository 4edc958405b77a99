#pragma once
// The TCP of the kernel this runs on, behind a TUN device in a network namespace.
//
// A packet written to the device has been through the kernel's TCP when write() returns, and what
// it answers lies in the device's queue: nothing here waits. The kernel's own timers are put out of
// the way (kSettings, and the route's rto_min); a delayed acknowledgment is fetched by
// TCP_QUICKACK.

#include <memory>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "differential/subject.h"

namespace sandbox::tcp::differential {

// Moves this process into a network namespace of its own, with a TUN device that leads to the
// guests' addresses, and gives its descriptor. kUnavailable where this user may have no namespace
// or no device.
Result<Fd> enter_namespace();

class KernelSubject : public Subject {
 public:
  // In the namespace that was entered; starts the servers.
  static Result<std::unique_ptr<KernelSubject>> start(Fd tun, Listener listener);

  void begin(Ipv4 guest, size_t count) override;
  void send(ByteView packet) override;
  void act(size_t connection, const Step& step) override;
  void settle() override;
  void rest() override;
  HostView look(size_t connection) override;
  void end() override;

 private:
  struct Host {
    Fd socket;
    Server server = Server::kReads;
    uint32_t connection = 0;
    uint64_t written = 0;
    Bytes received;
  };

  KernelSubject(Fd tun, Listener listener) : tun_(std::move(tun)), listener_(std::move(listener)) {}
  void take_connections();
  void take_connection(Fd socket, Server server, uint16_t guest_port);
  void read_all(Host& host);
  void hear();

  Fd tun_;
  Listener listener_;
  std::vector<std::pair<Fd, Server>> listening_;
  std::vector<Host> hosts_;
  Bytes buffer_;
};

}  // namespace sandbox::tcp::differential
