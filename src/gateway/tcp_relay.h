#pragma once
// The owner of the TCP terminator: joins each connection of the guest with a socket of the host, or
// with the name service.
//
//   guest SYN → gate 2 → connect() → SYN-ACK → bytes both ways, the guest's through gate 4
//
// and the other way round for a published port:
//
//   accept() → SYN to the guest → bytes both ways; refused by the guest → RST to who connected
//
// The listening socket comes from the supervisor: this process may not listen. A connection is
// opened into the guest only when somebody connects, so publishing a port on which nothing listens
// yet is fine.
//
// A Session is one connection. It ends by its own decision (stack.reset, drop, abort) or by
// on_closed; either way it goes to the relay's list of ended sessions, which is emptied once the
// loop's round is over, since the session itself is on the call stack when it ends.

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "gateway/gates.h"
#include "gateway/host_socket.h"
#include "gateway/name_service.h"
#include "gateway/questions.h"
#include "gateway/reporter.h"
#include "net/link.h"
#include "net/tcp/stack.h"

namespace sandbox::gateway {

class TcpRelay;

class Session {
 public:
  Session(TcpRelay& relay, tcp::Flow& flow) : relay_(relay), flow_(&flow) {}
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  virtual void on_established() {}
  virtual void on_readable() = 0;
  virtual void on_guest_fin() = 0;
  virtual void on_writable() = 0;
  virtual void on_closed(tcp::Close how) = 0;  // flow_ is dead once this returns
  virtual void on_policy_replaced() {}
  virtual void on_unpublished(uint64_t) {}

 protected:
  TcpRelay& relay_;
  tcp::Flow* flow_;  // null once it was handed back
};

class TcpRelay final : public tcp::Owner {
 public:
  // Connections into the guest come from the gateway's address and a port of this range (RFC 6335,
  // 6).
  static constexpr uint16_t kFirstEphemeral = 49152;

  struct Parts {
    EventLoop& loop;
    Gates& gates;
    NameService& names;
    Reporter& reporter;
    net::Link& link;
    Questions& questions;
  };
  explicit TcpRelay(const Parts& parts) : parts_(parts) {}
  ~TcpRelay() override;
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;
  void set_stack(tcp::Stack& stack) { stack_ = &stack; }  // stack and owner need each other

  void on_syn(tcp::Flow& flow) override;
  void on_established(tcp::Flow& flow) override;
  void on_readable(tcp::Flow& flow) override;
  void on_guest_fin(tcp::Flow& flow) override;
  void on_writable(tcp::Flow& flow) override;
  void on_closed(tcp::Flow& flow, tcp::Close how) override;
  void on_flow_limit(const tcp::Tuple& tuple) override;

  Status publish(uint64_t id, Fd listener, uint16_t guest_port);
  // Nobody connects any more, and who is connected is reset.
  Status unpublish(uint64_t id);

  // The policy has changed: every open flow is judged again.
  void policy_replaced();
  // Destroys what has ended. Call outside of any session.
  void sweep() { ended_.clear(); }

  [[nodiscard]] size_t sessions() const { return sessions_.size(); }
  [[nodiscard]] size_t connecting() const { return budget_.in_use(); }

  // For sessions.
  [[nodiscard]] const Parts& parts() const { return parts_; }
  [[nodiscard]] tcp::Stack& stack() { return *stack_; }
  [[nodiscard]] ConnectBudget& budget() { return budget_; }
  void end(Session& session);
  // In the log once, however often it happens.
  void note_once(const std::string& text);

 private:
  template <class Call>
  void for_each_session(Call call);
  Session& adopt(std::unique_ptr<Session> session, tcp::Flow& flow);
  void accept_one(uint64_t id);
  void accept_later(uint64_t id);
  tcp::Flow* open_to_guest(uint16_t guest_port);

  Parts parts_;
  tcp::Stack* stack_ = nullptr;
  struct Published {
    Fd listener;
    uint16_t guest_port;
  };
  std::map<uint64_t, Published> published_;
  uint16_t next_port_ = kFirstEphemeral;
  ConnectBudget budget_;
  bool noted_ = false;
  std::unordered_map<Session*, std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Session>> ended_;
};

}  // namespace sandbox::gateway
