#include "gateway/tcp_relay.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/socket.h"
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
  for (const auto& [id, published] : published_) parts_.loop.remove(published.listener.get());
}

// A session may end while it is called.
template <class Call>
void TcpRelay::for_each_session(Call call) {
  std::vector<Session*> all;
  all.reserve(sessions_.size());
  for (const auto& [session, owner] : sessions_) all.push_back(session);
  for (Session* session : all) call(*session);
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

Status TcpRelay::publish(uint64_t id, Fd listener, uint16_t guest_port) {
  if (published_.contains(id)) return fail(Code::kExists, "id {} is published already", id);
  TRY(set_nonblocking(listener.get(), true));
  TRY(parts_.loop.add(listener.get(), EventLoop::kRead, [this, id](uint32_t) { accept_one(id); }));
  published_.emplace(id, Published{std::move(listener), guest_port});
  return {};
}

Status TcpRelay::unpublish(uint64_t id) {
  const auto it = published_.find(id);
  if (it == published_.end()) return fail(Code::kNotFound, "id {} is not published", id);
  parts_.loop.remove(it->second.listener.get());
  published_.erase(it);
  for_each_session([id](Session& session) { session.on_unpublished(id); });
  return {};
}

void TcpRelay::accept_one(uint64_t id) {
  const Published& published = published_.at(id);
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  Fd socket(::accept4(published.listener.get(), reinterpret_cast<sockaddr*>(&from), &size,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) accept_later(id);
    return;  // gone again, or it waits in the backlog
  }
  tcp::Flow* flow = open_to_guest(published.guest_port);
  if (flow == nullptr) return abort_socket(socket);
  auto session = std::make_unique<RelaySession>(*this, *flow);
  RelaySession& relay = *session;
  adopt(std::move(session), *flow);
  relay.start_published(std::move(socket), to_ip_address(from), published.guest_port, id);
}

// No descriptor is left: watched on, the listener would be ready again at once and for as long.
void TcpRelay::accept_later(uint64_t id) {
  parts_.loop.modify(published_.at(id).listener.get(), 0);
  parts_.loop.after(kAcceptAgain, [this, id] {
    const auto it = published_.find(id);
    if (it != published_.end()) parts_.loop.modify(it->second.listener.get(), EventLoop::kRead);
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
  for_each_session([](Session& session) { session.on_policy_replaced(); });
}

void TcpRelay::note_once(const std::string& text) {
  if (!noted_) parts_.reporter.note(text);
  noted_ = true;
}

void TcpRelay::end(Session& session) {
  const auto it = sessions_.find(&session);
  if (it == sessions_.end()) return;
  ended_.push_back(std::move(it->second));
  sessions_.erase(it);
}

}  // namespace sandbox::gateway
