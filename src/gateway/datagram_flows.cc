#include "gateway/datagram_flows.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "gateway/host_socket.h"

namespace sandbox::gateway {

namespace {

constexpr int kPerTurn = 64;         // datagrams read from one socket in one turn of the loop
constexpr size_t kMaxRenewing = 64;  // first datagrams kept while their names are looked up again
constexpr size_t kUdpBuffer = 65536;

// Headers of a datagram of the guest, as an ICMP error about it quotes them: the kernel there finds
// its socket by them.
Bytes quote_udp(Ipv4 guest, uint16_t guest_port, Ipv4 destination, uint16_t port) {
  Bytes out(net::kIpv4Header + net::kUdpHeader);
  net::write_ipv4(out.data(), guest, destination, net::kProtocolUdp, net::kUdpHeader);
  net::write_udp(out.data() + net::kIpv4Header, guest, guest_port, destination, port, 0);
  return out;
}

}  // namespace

struct DatagramFlows::Entry {
  Key key{};
  Flow allowed;
  Fd socket;
  Instant begun;
  Instant last_used;
  audit::Traffic traffic;
};

size_t DatagramFlows::KeyHash::operator()(const Key& key) const noexcept {
  const uint64_t all = uint64_t{key.destination} << 32 | uint64_t{key.port} << 16 | key.guest_id;
  return std::hash<uint64_t>()(all * 0x9E3779B97F4A7C15ULL);
}

DatagramFlows::Key DatagramFlows::key_of(const Datagram& datagram) {
  return {datagram.destination.value, datagram.port, datagram.guest_id};
}

DatagramFlows::DatagramFlows(const DatagramParts& parts, policy::Protocol protocol)
    : parts_(parts),
      protocol_(protocol),
      limits_(protocol == policy::Protocol::kUdp ? kUdp : kEcho) {}

DatagramFlows::~DatagramFlows() {
  if (timer_ != 0) parts_.loop.cancel(timer_);
  for (const Entry& entry : order_) parts_.loop.remove(entry.socket.get());
}

void DatagramFlows::send(const Datagram& datagram) {
  if (datagram.payload.size() > limits_.payload)
    return refuse(datagram, net::Unreachable::kProhibited);
  route(datagram, Attempt::kFirst);
}

// Of several datagrams that waited for the same names, the first opens the flow of all.
void DatagramFlows::route(const Datagram& datagram, Attempt attempt) {
  const auto known = flows_.find(key_of(datagram));
  if (known != flows_.end()) return forward(*known->second, datagram);
  DialDecision decision =
      parts_.gates.dial(protocol_, datagram.destination, datagram.port, parts_.loop.now(), attempt);
  if (!decision.renew.empty()) return renew(datagram, decision.renew);
  judged(datagram, std::move(decision));
}

// The datagram waits, with few others, for its names to be looked up again; beyond those it is
// lost, as datagrams may be.
void DatagramFlows::renew(const Datagram& datagram, const std::vector<policy::HostName>& names) {
  if (renewing_ >= kMaxRenewing) return;
  ++renewing_;
  auto packet = std::make_shared<Bytes>(datagram.packet.begin(), datagram.packet.end());
  Datagram kept = datagram;
  kept.packet = *packet;
  kept.payload = kept.packet.last(datagram.payload.size());
  parts_.names.renew(names, [this, packet, kept, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    --renewing_;
    route(kept, Attempt::kRenewed);
  });
}

void DatagramFlows::judged(const Datagram& datagram, DialDecision decision) {
  parts_.reporter.dial(protocol_, datagram.destination, datagram.port, decision.decision);
  if (!decision.decision.allow) {
    const bool quic = decision.decision.reason == policy::Reason::kQuic;
    return refuse(datagram, quic ? net::Unreachable::kPort : net::Unreachable::kProhibited);
  }
  if (!make_room(datagram)) return;
  Entry* entry = open(datagram, std::move(decision));
  if (entry != nullptr) forward(*entry, datagram);
}

bool DatagramFlows::make_room(const Datagram& datagram) {
  if (flows_.size() < limits_.flows) return true;
  const auto oldest = std::prev(order_.end());
  if (parts_.loop.now() - oldest->last_used >= kGrace) {
    close(oldest, "made room for a newer flow");
    return true;
  }
  parts_.reporter.limit(protocol_, datagram.destination, datagram.port, "every flow is in use");
  refuse(datagram, net::Unreachable::kProhibited);
  return false;
}

DatagramFlows::Entry* DatagramFlows::open(const Datagram& datagram, DialDecision decision) {
  const auto kind =
      protocol_ == policy::Protocol::kUdp ? HostSocketKind::kDatagram : HostSocketKind::kPing;
  HostSocket socket = connect_host(kind, decision.connect_to, datagram.port);
  if (socket.error != 0) {
    open_failed(datagram, socket.error);
    return nullptr;
  }
  const Key key = key_of(datagram);
  const Status added =
      parts_.loop.add(socket.fd.get(), EventLoop::kRead, [this, key](uint32_t) { receive(key); });
  if (!added) {
    open_failed(datagram, ENOMEM);
    return nullptr;
  }
  const Instant now = parts_.loop.now();
  order_.push_front(
      Entry{key, std::move(decision.flow), std::move(socket.fd), now, now, audit::Traffic{}});
  flows_[key] = order_.begin();
  arm();
  return &order_.front();
}

void DatagramFlows::open_failed(const Datagram& datagram, int error) {
  if (protocol_ == policy::Protocol::kIcmp && (error == EACCES || error == EPERM)) {
    if (!ping_reported_)
      parts_.reporter.note(
          "echo is allowed by the policy but not by the host: net.ipv4.ping_group_range does not "
          "include the group of this process");
    ping_reported_ = true;
    return refuse(datagram, net::Unreachable::kHost);
  }
  if (error == EMFILE || error == ENFILE || error == ENOMEM)
    parts_.reporter.limit(protocol_, datagram.destination, datagram.port,
                          "the host allows no more descriptors");
  refuse(datagram, net::Unreachable::kHost);
}

void DatagramFlows::forward(Entry& entry, const Datagram& datagram) {
  Bytes echo;
  ByteView bytes = datagram.payload;
  if (protocol_ == policy::Protocol::kIcmp) {
    echo.resize(net::kIcmpHeader + bytes.size());
    std::memcpy(echo.data() + net::kIcmpHeader, bytes.data(), bytes.size());
    net::write_icmp_echo(echo.data(), net::IcmpEcho::kRequest, 0, datagram.sequence, bytes.size());
    bytes = echo;
  }
  entry.last_used = parts_.loop.now();
  entry.traffic.out += datagram.payload.size();
  order_.splice(order_.begin(), order_, flows_.at(entry.key));
  const Key key = entry.key;
  if (::send(entry.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0) return;
  // A full socket loses the datagram, as any hop may; the host's refusal of an earlier one shows
  // here.
  if (errno != EAGAIN && errno != ENOBUFS && errno != EINTR) host_error(key, errno);
}

void DatagramFlows::receive(const Key& key) {
  for (int i = 0; i < kPerTurn; ++i) {
    const auto it = flows_.find(key);
    if (it == flows_.end() || !receive_one(*it->second)) return;
  }
}

bool DatagramFlows::receive_one(Entry& entry) {
  if (buffer_.empty()) buffer_.resize(kUdpBuffer);
  const ssize_t got = ::recv(entry.socket.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) host_error(entry.key, errno);
    return false;
  }
  ByteView bytes(buffer_.data(), static_cast<size_t>(got));
  entry.last_used = parts_.loop.now();
  order_.splice(order_.begin(), order_, flows_.at(entry.key));
  const Ipv4 source{entry.key.destination};
  if (protocol_ == policy::Protocol::kUdp) {
    entry.traffic.in += bytes.size();
    (void)parts_.link.send_udp(source, entry.key.port, entry.key.guest_id, bytes);
    return true;
  }
  const auto echo = net::parse_icmp_echo(bytes);
  if (!echo || echo->type != net::IcmpEcho::kReply) return true;
  entry.traffic.in += echo->payload.size();
  (void)parts_.link.send_echo_reply(source, entry.key.guest_id, echo->sequence, echo->payload);
  return true;
}

// The host's own ICMP errors arrive as errors of the connected socket; they are told to the guest
// as what they were.
void DatagramFlows::host_error(const Key& key, int error) {
  const auto it = flows_.find(key);
  if (it == flows_.end()) return;
  if (error == EMSGSIZE) return;  // one datagram too large for the path; the flow itself is fine
  const bool refused = error == ECONNREFUSED;
  if (protocol_ == policy::Protocol::kUdp) {
    const auto code = refused ? net::Unreachable::kPort : net::Unreachable::kHost;
    (void)parts_.link.send_unreachable(
        code, quote_udp(parts_.link.config().guest_ip, key.guest_id, {key.destination}, key.port));
  }
  close(it->second, refused ? "refused by the host" : std::strerror(error));
}

void DatagramFlows::refuse(const Datagram& datagram, net::Unreachable code) {
  (void)parts_.link.send_unreachable(code, datagram.packet);
}

void DatagramFlows::close(Order::iterator entry, std::string_view why) {
  parts_.reporter.closed(entry->allowed, entry->traffic, why);
  parts_.loop.remove(entry->socket.get());
  flows_.erase(entry->key);
  order_.erase(entry);
}

void DatagramFlows::policy_replaced() {
  for (auto it = order_.begin(); it != order_.end();) {
    const auto entry = it++;
    const Decision decision = parts_.gates.rejudge(entry->allowed, parts_.loop.now());
    if (decision.allow) continue;
    parts_.reporter.dial(protocol_, entry->allowed.address, entry->allowed.port, decision);
    close(entry, "no longer allowed");
  }
}

void DatagramFlows::expire() {
  const Instant now = parts_.loop.now();
  while (!order_.empty() && now - order_.back().last_used >= limits_.idle)
    close(std::prev(order_.end()), "idle");
  arm();
}

void DatagramFlows::arm() {
  if (timer_ != 0 || order_.empty()) return;
  timer_ = parts_.loop.at(order_.back().last_used + limits_.idle, [this] {
    timer_ = 0;
    expire();
  });
}

}  // namespace sandbox::gateway
