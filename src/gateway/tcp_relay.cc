#include "gateway/tcp_relay.h"

#include "gateway/dns_session.h"
#include "gateway/relay_session.h"

namespace sandbox::gateway {

namespace {

constexpr uint16_t kDnsPort = 53;

Session& session_of(tcp::Flow& flow) {
  return *static_cast<Session*>(flow.context());
}

}  // namespace

void TcpRelay::on_syn(tcp::Flow& flow) {
  const tcp::Tuple& tuple = flow.tuple();
  const bool for_names =
      tuple.host_ip == parts_.link.config().gateway_ip && tuple.host_port == kDnsPort;
  std::unique_ptr<Session> session;
  if (for_names)
    session = std::make_unique<DnsSession>(*this, flow);
  else
    session = std::make_unique<RelaySession>(*this, flow);
  Session* raw = session.get();
  flow.set_context(raw);
  sessions_.emplace(raw, std::move(session));
  if (for_names)
    stack_->accept(flow);
  else
    static_cast<RelaySession*>(raw)->start();
}

void TcpRelay::on_readable(tcp::Flow& flow) {
  session_of(flow).on_readable();
}
void TcpRelay::on_guest_fin(tcp::Flow& flow) {
  session_of(flow).on_guest_fin();
}
void TcpRelay::on_writable(tcp::Flow& flow) {
  session_of(flow).on_writable();
}

void TcpRelay::on_closed(tcp::Flow& flow, tcp::Close how) {
  Session& session = session_of(flow);
  session.on_closed(how);
  end(session);
}

void TcpRelay::on_flow_limit(const tcp::Tuple& tuple) {
  parts_.reporter.limit(policy::Protocol::kTcp, tuple.host_ip, tuple.host_port,
                        "every TCP flow is in use");
}

void TcpRelay::policy_replaced() {
  std::vector<Session*> all;  // a session may end while it is asked
  all.reserve(sessions_.size());
  for (const auto& [session, owner] : sessions_) all.push_back(session);
  for (Session* session : all) session->on_policy_replaced();
}

void TcpRelay::end(Session& session) {
  const auto it = sessions_.find(&session);
  if (it == sessions_.end()) return;
  ended_.push_back(std::move(it->second));
  sessions_.erase(it);
}

}  // namespace sandbox::gateway
