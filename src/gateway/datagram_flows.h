#pragma once
// UDP and echo: flows without a connection, each joined with a connected datagram socket of the
// host.
//
// A flow begins with a datagram that gates 2 or 3 allow and ends when it was idle for its time,
// when the host answers that nothing listens there, or when it is the oldest and a new one needs
// its place. What is refused is answered with an ICMP error that quotes the datagram: UDP 443 with
// "port unreachable", so that clients fall back from QUIC at once, everything else with
// "administratively prohibited".
//
// Echo uses the kernel's unprivileged ICMP socket, which chooses its own identifier; the guest's is
// put back into replies. Where net.ipv4.ping_group_range forbids that socket, the guest is told
// "unreachable" and the record says why, once.

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "gateway/gates.h"
#include "gateway/name_service.h"
#include "gateway/reporter.h"
#include "net/link.h"

namespace sandbox::gateway {

struct DatagramParts {
  EventLoop& loop;
  Gates& gates;
  NameService& names;
  Reporter& reporter;
  net::Link& link;
};

class DatagramFlows {
 public:
  struct Limits {
    size_t flows;
    Duration idle;
    size_t payload;  // largest that is passed on, either way
  };
  static constexpr Limits kUdp{1024, std::chrono::seconds(120), 65507};
  static constexpr Limits kEcho{64, std::chrono::seconds(30), 8192};
  // A flow this young is never sacrificed for a new one.
  static constexpr Duration kGrace = std::chrono::seconds(5);

  // `protocol` is kUdp or kIcmp.
  DatagramFlows(const DatagramParts& parts, policy::Protocol protocol);
  ~DatagramFlows();
  DatagramFlows(const DatagramFlows&) = delete;
  DatagramFlows& operator=(const DatagramFlows&) = delete;

  // One datagram of the guest. `guest_id` is its source port or its echo identifier.
  struct Datagram {
    Ipv4 destination;
    uint16_t port = 0;  // 0 for echo
    uint16_t guest_id = 0;
    uint16_t sequence = 0;  // of the echo
    ByteView payload;
    ByteView packet;  // as it came, to be quoted
  };
  void send(const Datagram& datagram);
  void policy_replaced();
  [[nodiscard]] size_t size() const { return flows_.size(); }

 private:
  struct Key {
    uint32_t destination;
    uint16_t port;
    uint16_t guest_id;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const noexcept;
  };
  struct Entry;
  using Order = std::list<Entry>;  // front: used last

  static Key key_of(const Datagram& datagram);
  void route(const Datagram& datagram, Attempt attempt);
  void judged(const Datagram& datagram, DialDecision decision);
  void renew(const Datagram& datagram, const std::vector<policy::HostName>& names);
  bool make_room(const Datagram& datagram);
  Entry* open(const Datagram& datagram, DialDecision decision);
  void open_failed(const Datagram& datagram, int error);
  void forward(Entry& entry, const Datagram& datagram);
  void receive(const Key& key);
  bool receive_one(Entry& entry);
  void host_error(const Key& key, int error);
  void refuse(const Datagram& datagram, net::Unreachable code);
  void close(Order::iterator entry, std::string_view why);
  void expire();
  void arm();

  DatagramParts parts_;
  policy::Protocol protocol_;
  Limits limits_;
  Order order_;
  std::unordered_map<Key, Order::iterator, KeyHash> flows_;
  Bytes buffer_;  // for one datagram from the host
  size_t renewing_ = 0;
  bool ping_reported_ = false;
  EventLoop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sandbox::gateway
