#include "gateway/relay_session.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace sandbox::gateway {

namespace {

// At most this much of one host socket is read in one turn of the loop.
constexpr size_t kTurn = size_t{1} << 20;

// The guest's SYN as far as an ICMP error quotes it: IPv4 header, ports, sequence number.
std::array<uint8_t, net::kIpv4Header + 8> quote_syn(const tcp::Flow& flow) {
  std::array<uint8_t, net::kIpv4Header + 8> out{};
  const tcp::Tuple& tuple = flow.tuple();
  net::write_ipv4(out.data(), tuple.guest_ip, tuple.host_ip, net::kProtocolTcp, tcp::kTcpHeader);
  ByteWriter tcp_header;
  tcp_header.be16(tuple.guest_port);
  tcp_header.be16(tuple.host_port);
  tcp_header.be32(flow.guest_initial_seq());
  std::ranges::copy(tcp_header.view(), out.begin() + net::kIpv4Header);
  return out;
}

// The first `count` bytes of two pieces.
tcp::ReadSpans first_of(tcp::ReadSpans spans, size_t count) {
  const size_t in_first = std::min(count, spans.first.size());
  spans.first = spans.first.first(in_first);
  spans.second = spans.second.first(std::min(count - in_first, spans.second.size()));
  return spans;
}

std::string_view close_text(tcp::Close how) {
  switch (how) {
    case tcp::Close::kFinished:
      return "finished";
    case tcp::Close::kReset:
      return "reset by the sandbox";
    case tcp::Close::kRefused:
      return "refused by the sandbox";
    case tcp::Close::kTimeout:
      return "timed out";
    case tcp::Close::kEvicted:
      return "made room for a newer flow";
    case tcp::Close::kReplaced:
      return "begun anew by the sandbox";
  }
  return "";
}

}  // namespace

RelaySession::RelaySession(TcpRelay& relay, tcp::Flow& flow) : Session(relay, flow) {}

RelaySession::~RelaySession() {
  stop_timer();
  leave_budget();
  if (watched_) relay_.parts().loop.remove(socket_.get());
}

// ---- gate 2 and connect ----

void RelaySession::start() {
  const tcp::Tuple& tuple = flow_->tuple();
  auto& parts = relay_.parts();
  DialDecision decision =
      parts.gates.dial(policy::Protocol::kTcp, tuple.host_ip, tuple.host_port, parts.loop.now());
  if (decision.renew.empty()) return judged(std::move(decision));
  parts.names.renew(decision.renew, [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired() || flow_ == nullptr) return;
    const tcp::Tuple& again = flow_->tuple();
    const auto& p = relay_.parts();
    judged(p.gates.dial(policy::Protocol::kTcp, again.host_ip, again.host_port, p.loop.now(),
                        Attempt::kRenewed));
  });
}

// A repeated SYN of the guest changes nothing meanwhile: the stack knows the flow.
bool RelaySession::hold() {
  auto& parts = relay_.parts();
  if (asked_ || !parts.questions.on()) return false;
  const tcp::Tuple& tuple = flow_->tuple();
  const Instant now = parts.loop.now();
  const auto rule = parts.gates.missing_rule(tuple.host_ip, tuple.host_port, now);
  if (!rule) return false;
  const bool by_name = rule->exact_name() != nullptr;
  asked_ = parts.questions.hold(
      *rule, fmt::format("connect to {}{}", rule->text(), by_name ? "" : ", which no name led to"),
      [this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired() && flow_ != nullptr) start();
      },
      now);
  return asked_;
}

void RelaySession::judged(DialDecision decision) {
  if (!decision.decision.allow && hold()) return;
  if (!decision.decision.allow && asked_) decision.decision.text += kAskedInVain;
  const tcp::Tuple& tuple = flow_->tuple();
  relay_.parts().reporter.dial(policy::Protocol::kTcp, tuple.host_ip, tuple.host_port,
                               decision.decision);
  if (!decision.decision.allow) return reset_guest({});
  was_allowed_ = true;
  allowed_ = std::move(decision.flow);
  connect(decision);
}

void RelaySession::connect(const DialDecision& decision) {
  phase_ = Phase::kConnecting;
  // A proxy is near, or it is down.
  const bool short_wait = decision.has_alternatives || decision.through_proxy;
  connect_timeout_ = short_wait ? kShortConnectTimeout : kConnectTimeout;
  const tcp::Tuple& tuple = flow_->tuple();
  through_proxy_ = decision.through_proxy;
  // Behind a proxy each destination has its share of the budget, not all together that of the
  // proxy.
  if (!enter_budget(through_proxy_ ? IpAddress(tuple.host_ip) : decision.connect_to)) return;
  if (through_proxy_) return connect_to_proxy();
  open_socket(decision.connect_to, tuple.host_port);
}

bool RelaySession::enter_budget(const IpAddress& address) {
  budget_for_ = address;
  in_budget_ = relay_.budget().take(address);
  if (in_budget_) return true;
  const tcp::Tuple& tuple = flow_->tuple();
  relay_.parts().reporter.limit(policy::Protocol::kTcp, tuple.host_ip, tuple.host_port,
                                "too many connections are being opened");
  reset_guest("too many connections are being opened");
  return false;
}

void RelaySession::open_socket(const IpAddress& address, uint16_t port) {
  const tcp::Tuple& tuple = flow_->tuple();
  HostSocket socket = connect_host(HostSocketKind::kStream, address, port);
  if (socket.error == EMFILE || socket.error == ENFILE)
    relay_.parts().reporter.limit(policy::Protocol::kTcp, tuple.host_ip, tuple.host_port,
                                  "the host allows no more descriptors");
  if (socket.error != 0) return connect_failed(socket.error);
  socket_ = std::move(socket.fd);
  interest_ = EventLoop::kWrite;
  const Status added = relay_.parts().loop.add(socket_.get(), interest_,
                                               [this](uint32_t ready) { on_socket(ready); });
  if (!added) return connect_failed(ENOMEM);
  watched_ = true;
  set_timer(connect_timeout_, &RelaySession::connect_timed_out);
}

void RelaySession::connect_finished() {
  const int error = socket_error(socket_.get());
  stop_timer();
  if (error != 0) return connect_failed(error);
  if (through_proxy_) return tunnel();
  leave_budget();
  connected();
}

void RelaySession::connect_failed(int error) {
  if (through_proxy_ && error != EMFILE && error != ENFILE)
    return proxy_unreachable(fmt::format("cannot be reached: {}", std::strerror(error)));
  // What a direct connection would show: a refusal is a RST, anything else an unreachable host.
  if (error == ECONNREFUSED || error == ECONNRESET) return reset_guest("refused by the host");
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
    return reset_guest("no descriptors left");
  unreachable(std::strerror(error));
}

void RelaySession::connect_timed_out() {
  if (through_proxy_) return proxy_unreachable("does not answer");
  unreachable("no answer from the host");
}

// ---- the upstream proxy ----

void RelaySession::connect_to_proxy() {
  const UpstreamProxy& proxy = *relay_.parts().gates.proxy();
  if (proxy.addresses.empty())
    return proxy_failed(
        fmt::format("the upstream proxy {} was not found when the sandbox began", proxy.text()));
  open_socket(proxy.addresses.at(proxy_address_), proxy.port);
}

// Its other addresses are tried before it is given up.
void RelaySession::proxy_unreachable(std::string_view why) {
  const UpstreamProxy& proxy = *relay_.parts().gates.proxy();
  if (watched_) relay_.parts().loop.remove(socket_.get());
  watched_ = false;
  socket_.reset();
  if (++proxy_address_ < proxy.addresses.size()) return connect_to_proxy();
  proxy_failed(fmt::format("the upstream proxy {} {}", proxy.text(), why));
}

void RelaySession::tunnel() {
  if (!tunnel_) {
    phase_ = Phase::kTunnelling;
    tunnel_.emplace(*relay_.parts().gates.proxy(), *through_proxy_);
    set_timer(kConnectTimeout, &RelaySession::proxy_timed_out);
  }
  switch (tunnel_->advance(socket_.get())) {
    case ProxyTunnel::State::kWriting:
      return;
    case ProxyTunnel::State::kReading:
      interest_ = EventLoop::kRead;
      return relay_.parts().loop.modify(socket_.get(), interest_);
    case ProxyTunnel::State::kOpen:
      stop_timer();
      leave_budget();
      return connected();
    case ProxyTunnel::State::kFailed:
      break;
  }
  if (tunnel_->wants_credentials()) relay_.note_once(tunnel_->why());
  proxy_failed(tunnel_->why());
}

void RelaySession::proxy_timed_out() {
  proxy_failed(
      fmt::format("the upstream proxy {} gave no answer", relay_.parts().gates.proxy()->text()));
}

// A refusal to the guest, whatever it was: it can do nothing about the proxy.
void RelaySession::proxy_failed(std::string_view why) {
  const std::string kept(why);
  relay_.parts().reporter.proxy_failed(allowed_, kept);
  reset_guest(kept);
}

void RelaySession::connected() {
  phase_ = Phase::kRelaying;
  relay_.parts().gates.used(allowed_);
  gate_.emplace(relay_.parts().gates, allowed_);
  relay_.stack().accept(*flow_);
  update_interest();
}

void RelaySession::start_published(Fd socket, const IpAddress& from, uint16_t guest_port,
                                   uint64_t id) {
  phase_ = Phase::kOpening;
  was_allowed_ = gate_open_ = true;
  published_ = id;
  socket_ = std::move(socket);
  allowed_.address = from;
  allowed_.port = guest_port;
  allowed_.rule = "publish";
}

void RelaySession::on_established() {
  if (phase_ != Phase::kOpening) return;
  phase_ = Phase::kRelaying;
  update_interest();
}

// ---- bytes ----

void RelaySession::on_socket(uint32_t ready) {
  if (phase_ == Phase::kConnecting) return connect_finished();
  if (phase_ == Phase::kTunnelling) return tunnel();
  if (phase_ != Phase::kRelaying) return update_interest();
  if ((ready & (EventLoop::kRead | EventLoop::kHangup)) != 0) pull();
  if (relaying() && (ready & (EventLoop::kWrite | EventLoop::kHangup)) != 0) {
    host_full_ = false;
    push();
  }
  // After a hang-up the loop would report it for ever; what is left to do waits for the guest.
  if (flow_ != nullptr && (ready & EventLoop::kHangup) != 0 && interest_ == 0 && watched_) {
    relay_.parts().loop.remove(socket_.get());
    watched_ = false;
  }
}

void RelaySession::pull() {
  bool more = true;
  for (size_t taken = 0; more && taken < kTurn && !host_ended_ && relaying();)
    taken += pull_once(more);
  if (flow_ != nullptr) update_interest();
}

size_t RelaySession::pull_once(bool& more) {
  const tcp::WriteSpans room = relay_.stack().tx_room(*flow_);
  if (room.size() == 0) {
    room_wanted_ = true;
    more = false;
    return 0;
  }
  const auto vectors = tcp::iovecs(room);
  const ssize_t got = ::readv(socket_.get(), vectors.data(), static_cast<int>(vectors.size()));
  if (got < 0 && errno == EINTR) return 0;
  if (got <= 0) {
    more = false;
    if (got == 0 || errno != EAGAIN) host_ended(got == 0 ? 0 : errno);
    return 0;
  }
  const auto count = static_cast<size_t>(got);
  more = count == room.size();
  relay_.stack().tx_commit(*flow_, count);
  if (gate_ && gate_->wants_server()) watch_gate_server(room, count);
  return count;
}

void RelaySession::host_ended(int error) {
  // A server that resets after we wrote shows as an end of file once the error was told to the
  // writer.
  if (error != 0 || host_deaf_)
    return abort_guest(tcp::Stack::Abort::kAfterFlush, "reset by the host");
  host_ended_ = true;
  relay_.stack().shutdown_write(*flow_);
}

void RelaySession::on_writable() {
  room_wanted_ = false;
  if (phase_ == Phase::kRelaying && !host_ended_) pull();
}

void RelaySession::on_readable() {
  if (phase_ == Phase::kFarewell) {
    relay_.stack().consume(*flow_, relay_.stack().rx(*flow_).size());
    return;
  }
  push();
}

void RelaySession::push() {
  feed_gate();
  while (relaying() && passable_ > 0 && !host_full_) {
    const tcp::ReadSpans bytes = first_of(relay_.stack().rx(*flow_), passable_);
    const auto vectors = tcp::iovecs(bytes);
    const ssize_t put =
        host_deaf_ ? static_cast<ssize_t>(bytes.size())
                   : ::writev(socket_.get(), vectors.data(), static_cast<int>(vectors.size()));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {
      host_full_ = true;
      break;
    }
    if (put < 0) {
      host_deaf_ = true;
      continue;
    }
    const auto count = static_cast<size_t>(put);
    relay_.stack().consume(*flow_, count);
    fed_ -= count;
    passable_ -= count;
    host_full_ = count < bytes.size();
  }
  if (flow_ != nullptr) update_interest();
}

void RelaySession::on_guest_fin() {
  if (phase_ != Phase::kRelaying) return;
  ::shutdown(socket_.get(), SHUT_WR);
  update_interest();
}

void RelaySession::update_interest() {
  uint32_t wanted = 0;
  if (phase_ == Phase::kRelaying) {
    if (!host_ended_ && !room_wanted_) wanted |= EventLoop::kRead;
    if (host_full_) wanted |= EventLoop::kWrite;
  }
  interest_ = wanted;
  auto& loop = relay_.parts().loop;
  if (watched_) return loop.modify(socket_.get(), wanted);
  if (wanted == 0 || !socket_) return;
  const Status added =
      loop.add(socket_.get(), wanted, [this](uint32_t ready) { on_socket(ready); });
  if (!added) return abort_guest(tcp::Stack::Abort::kNow, "the host allows no more watches");
  watched_ = true;
}

// ---- gate 4 ----

void RelaySession::feed_gate() {
  const auto& parts = relay_.parts();
  const tcp::ReadSpans all = relay_.stack().rx(*flow_);
  while (!gate_open_ && fed_ < all.size()) {
    const ByteView piece = fed_ < all.first.size() ? all.first.subspan(fed_)
                                                   : all.second.subspan(fed_ - all.first.size());
    fed_ += piece.size();
    if (!take(gate_->from_client(piece, parts.loop.now()))) return;
  }
  if (gate_open_) fed_ = passable_ = all.size();
  // The guest has said everything and gate 4 is still undecided: nothing will change that.
  if (!gate_open_ && flow_->guest_finished() && gate_->state() == StreamGate::State::kHold &&
      passable_ < all.size())
    gate_timed_out();
}

// False when the flow was refused.
bool RelaySession::take(const StreamGate::Step& step) {
  for (const Decision& decision : step.decisions) {
    // A stream that shows no name is allowed by what the dial decided, which is on record.
    if (decision.allow && decision.shown_by == ShownBy::kNothing) continue;
    relay_.parts().reporter.stream(allowed_, decision);
  }
  passable_ += step.pass;
  if (step.state == StreamGate::State::kRefused) {
    refuse(step.farewell);
    return false;
  }
  gate_open_ = step.state == StreamGate::State::kOpen;
  patience();
  return true;
}

// Runs the timer exactly while bytes of the guest are held undecided.
void RelaySession::patience() {
  const bool holding =
      !gate_open_ && gate_->state() == StreamGate::State::kHold && fed_ > passable_;
  if (!holding) return stop_timer();
  if (timer_ == 0) set_timer(StreamGate::kPatience, &RelaySession::gate_timed_out);
}

void RelaySession::gate_timed_out() {
  (void)take(gate_->timed_out());
}

void RelaySession::watch_gate_server(const tcp::WriteSpans& room, size_t count) {
  const size_t in_first = std::min(count, room.first.size());
  const Instant now = relay_.parts().loop.now();
  if (!take(gate_->from_server(room.first.first(in_first), now))) return;
  if (count > in_first && gate_->wants_server() &&
      !take(gate_->from_server(room.second.first(count - in_first), now)))
    return;
  push();
}

void RelaySession::refuse(const Bytes& farewell) {
  phase_ = Phase::kFarewell;
  if (watched_) relay_.parts().loop.remove(socket_.get());
  watched_ = false;
  abort_socket(socket_);
  ByteView left(farewell);
  while (!left.empty()) {
    const tcp::WriteSpans room = relay_.stack().tx_room(*flow_);
    const size_t count = std::min(left.size(), room.first.size());
    if (count == 0) break;  // behind a full ring the reset has to speak for itself
    std::ranges::copy(left.first(count), room.first.begin());
    relay_.stack().tx_commit(*flow_, count);
    left = left.subspan(count);
  }
  if (!host_ended_) relay_.stack().shutdown_write(*flow_);
  relay_.stack().consume(*flow_, relay_.stack().rx(*flow_).size());
  stop_timer();
  set_timer(kFarewellTimeout, &RelaySession::farewell_timed_out);
}

void RelaySession::farewell_timed_out() {
  abort_guest(tcp::Stack::Abort::kNow, "refused by its name");
}

void RelaySession::on_policy_replaced() {
  const bool opening = phase_ == Phase::kConnecting || phase_ == Phase::kTunnelling;
  if (published_ || (phase_ != Phase::kRelaying && !opening)) return;
  const auto& parts = relay_.parts();
  const Decision decision = parts.gates.rejudge(allowed_, parts.loop.now());
  if (decision.allow) return;
  parts.reporter.dial(policy::Protocol::kTcp, allowed_.address, allowed_.port, decision);
  if (opening) return reset_guest("no longer allowed");
  abort_guest(tcp::Stack::Abort::kNow, "no longer allowed");
}

void RelaySession::on_unpublished(uint64_t id) {
  if (published_ == id) abort_guest(tcp::Stack::Abort::kNow, "no longer published");
}

// ---- ends ----

void RelaySession::on_closed(tcp::Close how) {
  const bool orderly = how == tcp::Close::kFinished && !host_deaf_;
  (void)finish(phase_ == Phase::kFarewell ? "refused by its name" : close_text(how), !orderly);
}

void RelaySession::reset_guest(std::string_view why) {
  tcp::Flow* flow = finish(why, true);
  relay_.stack().reset(*flow);
}

void RelaySession::unreachable(std::string_view why) {
  tcp::Flow* flow = finish(why, true);
  (void)relay_.parts().link.send_unreachable(net::Unreachable::kHost, quote_syn(*flow));
  relay_.stack().drop(*flow);
}

void RelaySession::abort_guest(tcp::Stack::Abort when, std::string_view why) {
  tcp::Flow* flow = finish(why, true);
  relay_.stack().abort(*flow, when);
}

// Everything but the last word to the stack, which the caller has: afterwards the flow is no longer
// ours to read.
tcp::Flow* RelaySession::finish(std::string_view why, bool abort_host) {
  if (was_allowed_)
    relay_.parts().reporter.closed(allowed_, {flow_->bytes_from_guest(), flow_->bytes_to_guest()},
                                   why);
  alive_.reset();
  stop_timer();
  leave_budget();
  if (watched_) relay_.parts().loop.remove(socket_.get());
  watched_ = false;
  if (abort_host) abort_socket(socket_);
  socket_.reset();
  relay_.end(*this);
  return std::exchange(flow_, nullptr);
}

void RelaySession::leave_budget() {
  if (in_budget_) relay_.budget().give_back(budget_for_);
  in_budget_ = false;
}

void RelaySession::set_timer(Duration delay, void (RelaySession::*call)()) {
  timer_ = relay_.parts().loop.after(delay, [this, call] {
    timer_ = 0;
    (this->*call)();
  });
}

void RelaySession::stop_timer() {
  if (timer_ != 0) relay_.parts().loop.cancel(timer_);
  timer_ = 0;
}

}  // namespace sandbox::gateway
