#pragma once
// The control socket of a running sandbox: who may talk, and how much at once.
//
// run/NAME/control is a unix SOCK_SEQPACKET socket of mode 0600 in a directory of 0700. Peers of
// another uid are turned away (SO_PEERCRED). The guest cannot come near it: no share holds the run
// directory, and a socket in a share would be the guest kernel's own.
//
// Limits: 32 connections, 128 KiB and 16 descriptors a message, 10 s for the first request. What a
// client does not read waits, up to 64 messages; then the client is cut off. Nothing here blocks.
//
// What requests mean is the handler's business (control.h). It may answer at once or later, and as
// often as it likes: it keeps the connection for that, and tests open() first.

#include <sys/types.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "supervisor/control_messages.h"

namespace sandbox {

class ControlServer {
 public:
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxWaiting = 64;
  static constexpr Duration kFirstRequest = std::chrono::seconds(10);

  struct Peer {
    uid_t uid = 0;
    pid_t pid = 0;
  };
  class Connection {
   public:
    Connection(ControlServer& server, Fd fd, Peer peer)
        : server_(server), fd_(std::move(fd)), peer_(peer) {}
    void send(std::string message);
    [[nodiscard]] bool open() const { return fd_.valid(); }
    [[nodiscard]] const Peer& peer() const { return peer_; }
    // Called once when the client has gone, never from inside send().
    void on_close(std::function<void()> call) { on_close_ = std::move(call); }

   private:
    friend class ControlServer;
    ControlServer& server_;
    Fd fd_;
    Peer peer_;
    bool asked_ = false;
    std::deque<std::string> waiting_;
    std::function<void()> on_close_;
  };
  using Client = std::shared_ptr<Connection>;
  using Handler =
      std::function<void(const control::Request&, std::vector<Fd> descriptors, const Client&)>;

  // Makes the socket. Connections wait until start(): until then there is nothing to say to them.
  static Result<std::unique_ptr<ControlServer>> create(EventLoop& loop, const std::string& run_dir);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  Status start(Handler handler);
  // A connection that was made in another way: the one a sandbox is started with.
  Status adopt(Fd fd);
  [[nodiscard]] size_t connections() const { return clients_.size(); }

 private:
  ControlServer(EventLoop& loop, Fd listener) : loop_(loop), listener_(std::move(listener)) {}
  void accept_one();
  void ready(const Client& client, uint32_t events);
  void read_one(const Client& client);
  bool flush(Connection& connection);  // false: it has to go
  void close(const Client& client);    // the caller's own pointer, not the one in clients_

  EventLoop& loop_;
  Fd listener_;
  Handler handler_;
  std::unordered_set<Client> clients_;
};

// Where that socket is, as bind(2) and connect(2) take it however long the directory's name is.
// `directory` is open for as long as the path is used.
std::string control_socket_path(const Fd& directory);

}  // namespace sandbox
