#include "differential/stack_subject.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "net/ipv4.h"

namespace sandbox::tcp::differential {
namespace {

constexpr size_t kRing = 65536;  // small enough that a guest fills it in a step

Config config() {
  Config config;
  config.mtu = kMtu;
  config.rx_limit = kRing;
  config.secret = {7, 1, 9};  // the same each time: a seed says all
  return config;
}

Stage stage_of(State state) {
  switch (state) {
    case State::kEstablished:
      return Stage::kEstablished;
    case State::kFinWait1:
      return Stage::kFinWait1;
    case State::kFinWait2:
      return Stage::kFinWait2;
    case State::kCloseWait:
      return Stage::kCloseWait;
    case State::kClosing:
      return Stage::kClosing;
    case State::kLastAck:
      return Stage::kLastAck;
    default:
      return Stage::kNone;
  }
}

}  // namespace

const char* name(Stage stage) {
  constexpr const char* kNames[] = {"none",       "ESTABLISHED", "FIN-WAIT-1", "FIN-WAIT-2",
                                    "CLOSE-WAIT", "CLOSING",     "LAST-ACK"};
  return kNames[static_cast<size_t>(stage)];
}

StackSubject::StackSubject(Listener listener)
    : listener_(std::move(listener)), stack_(config(), *this, *this) {}

void StackSubject::begin(Ipv4, size_t count) {
  hosts_.assign(count, {});
  silent_ = false;
}

void StackSubject::send(ByteView packet) {
  net::Ipv4Packet ip;
  SANDBOX_CHECK(net::parse_ipv4(packet, ip) == net::Ipv4Error::kNone);
  stack_.input(ip.source, ip.destination, ip.payload, now_);
}

void StackSubject::act(size_t connection, const Step& step) {
  Host& host = hosts_[connection];
  if (host.flow == nullptr || !host.established) return;
  switch (step.kind) {
    case Step::Kind::kWrite:
      if (host.closing) return;
      host.unwritten += step.count;
      return write_some(host);
    case Step::Kind::kRead:
      return read_all(host);
    case Step::Kind::kClose:
      host.closed_first = host.closed_first || host.flow->state() == State::kEstablished;
      host.closing = true;
      return write_some(host);
    case Step::Kind::kAbort:
      return stack_.abort(*std::exchange(host.flow, nullptr));
    default:
      return;
  }
}

void StackSubject::settle() {
  stack_.settle(now_);
}

void StackSubject::rest() {
  now_ = now_ + 10ms;
  stack_.on_timer(now_);
  stack_.settle(now_);
}

HostView StackSubject::look(size_t connection) {
  Host& host = hosts_[connection];
  HostView view;
  if (host.flow != nullptr) view.stage = stage_of(host.flow->state());
  // A close that waits behind bytes without room has happened, as far as the program can tell.
  if (host.closing && view.stage == Stage::kEstablished) view.stage = Stage::kFinWait1;
  if (host.closing && view.stage == Stage::kCloseWait) view.stage = Stage::kLastAck;
  if (host.closed_first && view.stage == Stage::kLastAck) view.stage = Stage::kClosing;
  view.connection = host.connection;
  view.received = std::exchange(host.received, {});
  return view;
}

void StackSubject::end() {
  stack_.check_invariants();
  silent_ = true;
  while (stack_.next_deadline() != Instant::never()) {
    now_ = std::max(now_, stack_.next_deadline());
    stack_.on_timer(now_);
    stack_.settle(now_);
  }
  SANDBOX_CHECK(stack_.flow_count() == 0);
  SANDBOX_CHECK(stack_.ring_memory_used() == 0);
}

bool StackSubject::gone(size_t connection) const {
  return hosts_[connection].flow == nullptr;
}

bool StackSubject::closed_by_host(size_t connection) const {
  return hosts_[connection].closing || hosts_[connection].flow == nullptr;
}

State StackSubject::state(size_t connection) const {
  const Host& host = hosts_[connection];
  if (host.flow == nullptr) return host.waits ? State::kTimeWait : State::kClosed;
  return host.flow->state();
}

// An ended flow may stay for the bytes its program has not read.
bool StackSubject::closed_late(size_t connection) const {
  const Host& host = hosts_[connection];
  const bool ended = host.flow != nullptr && host.flow->state() == State::kClosed;
  return host.late || (host.closed_first && ended);
}

// --- the server ---

StackSubject::Host& StackSubject::host_of(const Flow& flow) {
  return hosts_[flow.tuple().guest_port - kFirstPort];
}

void StackSubject::on_syn(Flow& flow) {
  const auto* port = std::ranges::find(kServerPorts, flow.tuple().host_port);
  SANDBOX_CHECK(port != std::end(kServerPorts));
  Host& host = host_of(flow);
  const uint32_t connection = host.connection;
  Bytes received = std::move(host.received);
  host = {};
  host.connection = connection;
  host.received = std::move(received);
  host.server = static_cast<Server>(port - std::begin(kServerPorts));
  if (host.server == Server::kAbsent) return stack_.reset(flow);
  host.flow = &flow;
  stack_.accept(flow);
}

void StackSubject::on_established(Flow& flow) {
  Host& host = host_of(flow);
  host.established = true;
  host.received.clear();
  ++host.connection;
}

void StackSubject::on_readable(Flow& flow) {
  Host& host = host_of(flow);
  if (host.server == Server::kReads) read_all(host);
}

void StackSubject::on_writable(Flow& flow) {
  write_some(host_of(flow));
}

void StackSubject::on_closed(Flow& flow, Close how) {
  Host& host = host_of(flow);
  if (host.flow != &flow) return;
  host.waits = flow.state() == State::kTimeWait;
  host.late = host.closed_first && !host.waits && how == Close::kFinished;
  host.flow = nullptr;
}

void StackSubject::read_all(Host& host) {
  const ReadSpans spans = stack_.rx(*host.flow);
  for (const ByteView piece : {spans.first, spans.second}) {
    host.received.insert(host.received.end(), piece.begin(), piece.end());
  }
  stack_.consume(*host.flow, spans.size());
}

void StackSubject::write_some(Host& host) {
  while (host.unwritten > 0) {
    const WriteSpans room = stack_.tx_room(*host.flow);
    const size_t n = std::min<size_t>(host.unwritten, room.size());
    if (n == 0) return;
    for (size_t i = 0; i < n; ++i) {
      uint8_t& place = i < room.first.size() ? room.first[i] : room.second[i - room.first.size()];
      place = host_byte(host.written++);
    }
    stack_.tx_commit(*host.flow, n);
    host.unwritten -= static_cast<uint32_t>(n);
  }
  if (host.closing) stack_.shutdown_write(*host.flow);
}

// --- packets ---

std::span<uint8_t> StackSubject::packet_room(size_t size) {
  buffer_.resize(size);
  return buffer_;
}

void StackSubject::send_packet() {
  if (!silent_) listener_(buffer_);
}

}  // namespace sandbox::tcp::differential
