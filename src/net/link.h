#pragma once
// The gateway's end of the cable: what a frame must look like to be considered at all, and how one
// is built.
//
// Everything that needs no decision about a destination happens here: ARP, DHCP, the checks on
// addresses and headers, the reassembly of datagrams, echo of the gateway itself. What is left goes
// up as a packet whose source is the leased address. Pure but for the Wire: the time is an
// argument.
//
// What is dropped is counted by kind, and the first of each kind is reported upwards, so that the
// record says that it happened without letting the guest fill the record.

#include <array>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "net/arp.h"
#include "net/dhcp.h"
#include "net/ethernet.h"
#include "net/icmp.h"
#include "net/ipv4.h"
#include "net/reassembly.h"
#include "net/udp.h"
#include "net/wire.h"

namespace sandbox::net {

enum class Drop : uint8_t {
  kFrameTruncated,
  kSourceMac,
  kDestinationMac,
  kVlan,
  kIpv6,
  kFrameType,
  kArpMalformed,
  kArpClaim,
  kIpMalformed,
  kIpOptions,
  kIpSource,
  kIpDestination,
  kTcpFragment,
  kFragmentOverlap,
  kFragmentInvalid,
  kFragmentLimit,
  kProtocol,
  kUdpMalformed,
  kIcmpUnsupported,
  kDhcpIgnored,
  kCount,
};
std::string_view drop_name(Drop drop);  // "source-mac": the word used in records and counters

struct LinkConfig {
  MacAddress guest_mac;
  MacAddress gateway_mac;
  Ipv4 guest_ip;
  Ipv4 gateway_ip;
  uint8_t prefix = 29;
  uint16_t mtu = 1500;
};

class Link {
 public:
  // Where packets go that passed. Views live until the call returns.
  class Upper {
   public:
    virtual ~Upper() = default;
    virtual void on_tcp(
        const Ipv4Packet& packet) = 0;  // header and checksum of TCP not yet looked at
    virtual void on_udp(const Ipv4Packet& packet, const UdpDatagram& datagram) = 0;
    virtual void on_echo_request(const Ipv4Packet& packet, const IcmpEcho& echo) = 0;
    // `detail` names what was seen, for the record: "source 02:00:00:00:00:07".
    virtual void on_first_drop(Drop drop, std::string_view detail) = 0;
  };

  Link(const LinkConfig& config, Wire& wire, Upper& upper);

  void receive(ByteView frame, Instant now);

  // Space for an IPv4 packet (header included) of `size` bytes to the guest; empty when the wire is
  // full. Fill, then commit.
  std::span<uint8_t> begin_packet(size_t size);
  void commit_packet() { wire_.commit_frame(); }

  // False when the wire was full: a datagram may be lost. Larger than the MTU: sent as fragments.
  bool send_udp(Ipv4 source, uint16_t source_port, uint16_t guest_port, ByteView payload);
  bool send_echo_reply(Ipv4 source, uint16_t identifier, uint16_t sequence, ByteView payload);
  // `offending` is the packet as it came, or its headers and the first 8 bytes behind them.
  bool send_unreachable(Unreachable code, ByteView offending);

  [[nodiscard]] const LinkConfig& config() const { return config_; }
  [[nodiscard]] uint64_t dropped(Drop drop) const { return drops_[static_cast<size_t>(drop)]; }

 private:
  void drop(Drop kind, std::string_view detail);
  void receive_arp(ByteView bytes);
  void receive_ipv4(ByteView bytes, Instant now);
  void receive_whole(const Ipv4Packet& packet);
  void receive_udp(const Ipv4Packet& packet);
  void receive_icmp(const Ipv4Packet& packet);
  bool receive_dhcp(const Ipv4Packet& packet);
  bool send_ipv4(const MacAddress& to, Ipv4 source, Ipv4 destination, uint8_t protocol,
                 ByteView payload);
  std::span<uint8_t> begin_frame(const MacAddress& to, uint16_t type, size_t payload_size);

  LinkConfig config_;
  Wire& wire_;
  Upper& upper_;
  Reassembly reassembly_;
  uint16_t next_id_ = 1;
  std::array<uint64_t, static_cast<size_t>(Drop::kCount)> drops_{};
};

}  // namespace sandbox::net
