#pragma once
// The stack under test, on a virtual clock. A script has at most 14 steps of 10 ms each, so the
// shortest timer that would speak by itself, 200 ms, never runs out in one.

#include <memory>

#include "differential/subject.h"
#include "net/tcp/stack.h"

namespace sandbox::tcp::differential {

class StackSubject : public Subject, private Owner, private PacketSink {
 public:
  explicit StackSubject(Listener listener);

  void begin(Ipv4 guest, size_t count) override;
  void send(ByteView packet) override;
  void act(size_t connection, const Step& step) override;
  void settle() override;
  void rest() override;
  HostView look(size_t connection) override;
  // The guest falls silent and time passes until no deadline is left. Every flow must have ended by
  // itself then; the process aborts when one has not, or has kept memory.
  void end() override;

  // What a generator may know beyond what a guest sees.
  [[nodiscard]] bool gone(size_t connection) const;
  [[nodiscard]] bool closed_by_host(size_t connection) const;
  [[nodiscard]] State state(size_t connection) const;
  [[nodiscard]] bool closed_late(size_t connection) const;

 private:
  // The server's end of one connection.
  struct Host {
    Flow* flow = nullptr;
    bool waits = false;  // it has ended in TIME-WAIT
    bool late = false;   // it has ended, and the close came to the stack after the guest's
    Server server = Server::kReads;
    uint32_t connection = 0;
    bool established = false;
    bool closed_first = false;  // before the guest did
    bool closing = false;       // nothing is written any more
    uint32_t unwritten = 0;     // waits for room
    uint64_t written = 0;
    Bytes received;
  };

  void on_syn(Flow& flow) override;
  void on_established(Flow& flow) override;
  void on_readable(Flow& flow) override;
  void on_guest_fin(Flow&) override {}
  void on_writable(Flow& flow) override;
  void on_closed(Flow& flow, Close how) override;
  void on_flow_limit(const Tuple&) override {}
  std::span<uint8_t> packet_room(size_t size) override;
  void send_packet() override;

  Host& host_of(const Flow& flow);
  void read_all(Host& host);
  void write_some(Host& host);

  Listener listener_;
  Instant now_{1h};
  std::vector<Host> hosts_;
  Bytes buffer_;
  bool silent_ = false;  // the guest listens no more
  Stack stack_;
};

}  // namespace sandbox::tcp::differential
