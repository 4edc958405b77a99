#pragma once
// DNS over TCP on the gateway's address (RFC 7766): queries may be pipelined and are answered as
// their answers come.
//
// Limits: 16 queries outstanding and 64 KiB of replies waiting per connection; beyond either, what
// the guest sends stays in its window.

#include <memory>

#include "gateway/tcp_relay.h"
#include "net/dns/message.h"

namespace sandbox::gateway {

class DnsSession final : public Session {
 public:
  static constexpr size_t kMaxOutstanding = 16;
  static constexpr size_t kMaxWaiting = 64 * 1024;

  DnsSession(TcpRelay& relay, tcp::Flow& flow);

  void on_readable() override;
  void on_guest_fin() override;
  void on_writable() override;
  void on_closed(tcp::Close how) override;

 private:
  struct Ticket;
  void read_queries();
  bool read_some();
  void ask(ByteView message);
  void reply(ByteView message);
  void ticket_gone();
  void pump();
  void give_up();

  dns::TcpFramer framer_;
  Bytes waiting_;  // replies that had no room yet
  size_t outstanding_ = 0;
  bool guest_finished_ = false;
  bool finished_ = false;
  bool reading_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sandbox::gateway
