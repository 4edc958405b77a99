#pragma once
// The gateway process without its confinement: everything that runs on its loop.
//
// One round of the loop: frames come up from the wire (Link checks them, the stack and the datagram
// flows take them), host sockets give and take bytes, timers fire; then settle() lets the stack
// speak, writes the wire and arms the one timer of the stack.
//
// It ends by itself when the supervisor is gone (end of file on control), when the wire is, or when
// the recorder is: what cannot be recorded is not done.

#include <memory>
#include <optional>
#include <string>

#include "audit/record_sink.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "gateway/config.h"
#include "gateway/datagram_flows.h"
#include "gateway/gates.h"
#include "gateway/host_addresses.h"
#include "gateway/name_service.h"
#include "gateway/reporter.h"
#include "gateway/resolver.h"
#include "gateway/tcp_relay.h"
#include "net/link.h"
#include "net/tcp/stack.h"
#include "net/wire.h"

namespace sandbox::gateway {

class Gateway final : public net::Link::Upper, public tcp::PacketSink {
 public:
  struct Descriptors {
    Fd wire;
    Fd control;
    Fd records;
  };
  // Opens all that cannot be opened once confined. Reads nothing from the wire yet.
  static Result<std::unique_ptr<Gateway>> create(EventLoop& loop, GatewayConfig config,
                                                 Descriptors descriptors);
  ~Gateway() override;
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Says ready, begins to read the wire, runs until the end; the error says why it ended, none when
  // the supervisor left.
  Status run();

  // From Link.
  void on_tcp(const net::Ipv4Packet& packet) override;
  void on_udp(const net::Ipv4Packet& packet, const net::UdpDatagram& datagram) override;
  void on_echo_request(const net::Ipv4Packet& packet, const net::IcmpEcho& echo) override;
  void on_first_drop(net::Drop drop, std::string_view detail) override;
  // From the stack.
  std::span<uint8_t> packet_room(size_t size) override { return link_.begin_packet(size); }
  void send_packet() override { link_.commit_packet(); }

 private:
  Gateway(EventLoop& loop, GatewayConfig config, std::unique_ptr<net::Wire> wire, Fd control,
          std::unique_ptr<audit::RecordSink> sink, std::unique_ptr<Resolver> resolver,
          std::unique_ptr<HostAddresses> addresses);

  Status start();
  void on_wire(uint32_t ready);
  void settle();
  void arm_stack_timer();
  void arm_ask_timer();
  void on_control();
  std::string apply(const control::Message& message, std::vector<Fd> descriptors);
  void replace_policy(policy::Policy policy);
  Status answer(const control::Answer& answer);
  std::string stats() const;
  void reply(const std::string& message);
  void end(Status status);

  EventLoop& loop_;
  std::unique_ptr<net::Wire> wire_;
  Fd control_;
  std::unique_ptr<audit::RecordSink> sink_;
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<HostAddresses> addresses_;

  Reporter reporter_;
  Gates gates_;
  Questions questions_;
  net::Link link_;
  NameService names_;
  TcpRelay relay_;
  tcp::Stack stack_;
  DatagramFlows udp_;
  DatagramFlows echo_;

  EventLoop::TimerId ask_timer_ = 0;
  Instant ask_timer_at_ = Instant::never();
  EventLoop::TimerId stack_timer_ = 0;
  Instant stack_timer_at_ = Instant::never();
  Status ended_;
};

}  // namespace sandbox::gateway
