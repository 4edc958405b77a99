#pragma once
// One allowed, or not yet allowed, TCP connection of the guest and its counterpart on the host.
//
//   kJudging     no answer of gate 2 yet: names are being looked up again, or a person is asked
//   kConnecting  allowed; connect() is under way, the guest has heard nothing yet
//   kTunnelling  connected to the upstream proxy, which is being asked for the destination
//   kOpening     of a published port: somebody has connected, the guest has not answered yet
//   kRelaying    SYN-ACK is out, bytes flow both ways
//   kFarewell    gate 4 refused: the guest is sent an alert or a 403, the host side is closed, what
//                the guest still sends is thrown away until it has closed too
//
// Guest → host. The stack's receive ring is the only buffer. Gate 4 is fed each byte once (`fed_`
// counts those at the front of the ring that it has seen) and says how many at the front may pass
// (`passable_`).
//
// Host → guest. The host socket is read straight into the stack's send ring and only while that has
// room, which is the back-pressure. The server's bytes are not held for gate 4: what a server says
// unasked on a connection that gate 2 allowed carries nothing out of the sandbox
// (docs/decisions/030-server-bytes.md).
//
// Ends. Host end of file → FIN after the ring has drained. Guest FIN → shutdown(SHUT_WR) once its
// bytes are written. Guest RST → RST to the host. Host RST → the guest gets what came before it,
// then RST.

#include <optional>

#include "gateway/proxy_tunnel.h"
#include "gateway/stream_gate.h"
#include "gateway/tcp_relay.h"

namespace sandbox::gateway {

class RelaySession final : public Session {
 public:
  static constexpr Duration kConnectTimeout = std::chrono::seconds(30);
  // When the client has another address of the same name to try, and to the upstream proxy.
  static constexpr Duration kShortConnectTimeout = std::chrono::seconds(8);
  static constexpr Duration kFarewellTimeout = std::chrono::seconds(5);

  RelaySession(TcpRelay& relay, tcp::Flow& flow);
  ~RelaySession() override;

  void start();
  // The other way round: `socket` is connected already, the flow is on its way into the guest, and
  // no gate has a say.
  void start_published(Fd socket, const IpAddress& from, uint16_t guest_port, uint64_t id);

  void on_established() override;
  void on_readable() override;
  void on_guest_fin() override;
  void on_writable() override;
  void on_closed(tcp::Close how) override;
  void on_policy_replaced() override;
  void on_unpublished(uint64_t id) override;

 private:
  enum class Phase { kJudging, kConnecting, kTunnelling, kOpening, kRelaying, kFarewell };

  void judged(DialDecision decision);
  bool hold();
  void connect(const DialDecision& decision);
  bool enter_budget(const IpAddress& address);
  void open_socket(const IpAddress& address, uint16_t port);
  void connect_finished();
  void connect_failed(int error);
  void connected();

  void connect_to_proxy();
  void proxy_unreachable(std::string_view why);
  void tunnel();
  void proxy_failed(std::string_view why);
  void proxy_timed_out();

  void on_socket(uint32_t ready);
  void pull();
  size_t pull_once(bool& more);
  void host_ended(int error);
  void push();
  void feed_gate();
  bool take(const StreamGate::Step& step);
  void watch_gate_server(const tcp::WriteSpans& room, size_t count);
  void patience();
  void refuse(const Bytes& farewell);
  void update_interest();

  [[nodiscard]] bool relaying() const { return flow_ != nullptr && phase_ == Phase::kRelaying; }

  // Ends. Each hands the flow back to the stack and the session to the relay.
  void reset_guest(std::string_view why);
  void unreachable(std::string_view why);
  void abort_guest(tcp::Stack::Abort when, std::string_view why);
  tcp::Flow* finish(std::string_view why, bool abort_host);
  void leave_budget();
  void set_timer(Duration delay, void (RelaySession::*call)());
  void stop_timer();
  void connect_timed_out();
  void gate_timed_out();
  void farewell_timed_out();

  Phase phase_ = Phase::kJudging;
  Flow allowed_;  // as the gates see it
  std::optional<StreamGate> gate_;
  Fd socket_;
  IpAddress budget_for_;
  std::optional<http::Authority> through_proxy_;
  size_t proxy_address_ = 0;  // of those of the proxy, the one being tried
  std::optional<ProxyTunnel> tunnel_;
  Duration connect_timeout_{};
  size_t fed_ = 0;
  size_t passable_ = 0;
  uint32_t interest_ = 0;
  std::optional<uint64_t> published_;  // by which listener it came
  bool was_allowed_ = false;           // by gate 2
  bool watched_ = false;               // the loop knows the socket
  bool in_budget_ = false;
  bool asked_ = false;        // it waited for a person's answer
  bool gate_open_ = false;    // gate 4 wants to see no more
  bool room_wanted_ = false;  // the ring to the guest is full
  bool host_full_ = false;    // the host socket takes no more
  bool host_ended_ = false;   // end of file was read
  bool host_deaf_ = false;    // the host reset its side: what the guest sends is thrown away
  EventLoop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sandbox::gateway
