#include "gateway/tcp_relay.h"

#include <sys/socket.h>

#include <cerrno>

#include "gateway/dns_session.h"
#include "gateway/relay_session.h"

namespace sandbox::gateway {

namespace {

constexpr uint16_t kDnsPort = 53;
constexpr Duration kAcceptAgain = std::chrono::milliseconds(200);

Session& session_of(tcp::Flow& flow) {
  return *static_cast<Session*>(flow.context());
}

}  // namespace

TcpRelay::~TcpRelay() {
  for (const auto& [port, listener] : published_) parts_.loop.remove(listener.get());
}

Session& TcpRelay::adopt(std::unique_ptr<Session> session, tcp::Flow& flow) {
  Session& out = *session;
  flow.set_context(&out);
  sessions_.emplace(&out, std::move(session));
  return out;
}

void TcpRelay::on_syn(tcp::Flow& flow) {
  const tcp::Tuple& tuple = flow.tuple();
  const bool for_names =
      tuple.host_ip == parts_.link.config().gateway_ip && tuple.host_port == kDnsPort;
  if (for_names) {
    adopt(std::make_unique<DnsSession>(*this, flow), flow);
    return stack_->accept(flow);
  }
  auto session = std::make_unique<RelaySession>(*this, flow);
  RelaySession& relay = *session;
  adopt(std::move(session), flow);
  relay.start();
}

// ---- published ports ----

Status TcpRelay::publish(Fd listener, uint16_t guest_port) {
  if (published_.contains(guest_port))
    return fail(Code::kExists, "port {} is published already", guest_port);
  TRY(set_nonblocking(listener.get(), true));
  TRY(parts_.loop.add(listener.get(), EventLoop::kRead,
                      [this, guest_port](uint32_t) { accept_one(guest_port); }));
  published_.emplace(guest_port, std::move(listener));
  return {};
}

Status TcpRelay::unpublish(uint16_t guest_port) {
  const auto it = published_.find(guest_port);
  if (it == published_.end()) return fail(Code::kNotFound, "port {} is not published", guest_port);
  parts_.loop.remove(it->second.get());
  published_.erase(it);
  return {};
}

void TcpRelay::accept_one(uint16_t guest_port) {
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  Fd socket(::accept4(published_.at(guest_port).get(), reinterpret_cast<sockaddr*>(&from), &size,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) accept_later(guest_port);
    return;  // gone again, or it waits in the backlog
  }
  tcp::Flow* flow = open_to_guest(guest_port);
  if (flow == nullptr) return abort_socket(socket);
  auto session = std::make_unique<RelaySession>(*this, *flow);
  RelaySession& relay = *session;
  adopt(std::move(session), *flow);
  relay.start_published(std::move(socket), to_ip_address(from), guest_port);
}

// No descriptor is left: watched on, the listener would be ready again at once and for as long.
void TcpRelay::accept_later(uint16_t guest_port) {
  parts_.loop.modify(published_.at(guest_port).get(), 0);
  parts_.loop.after(kAcceptAgain, [this, guest_port] {
    const auto it = published_.find(guest_port);
    if (it != published_.end()) parts_.loop.modify(it->second.get(), EventLoop::kRead);
  });
}

tcp::Flow* TcpRelay::open_to_guest(uint16_t guest_port) {
  const net::LinkConfig& link = parts_.link.config();
  for (int tries = 0; tries < 64; ++tries) {
    const uint16_t port = next_port_;
    next_port_ = next_port_ == UINT16_MAX ? kFirstEphemeral : static_cast<uint16_t>(next_port_ + 1);
    const tcp::Tuple tuple{link.guest_ip, link.gateway_ip, guest_port, port};
    if (tcp::Flow* flow = stack_->connect(tuple, parts_.loop.now()); flow != nullptr) return flow;
  }
  return nullptr;
}

// ---- events of the stack ----

void TcpRelay::on_established(tcp::Flow& flow) {
  session_of(flow).on_established();
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
