#pragma once
// A DHCP server (RFC 2131, 2132) for a network of one client and one lease. Pure: a message in, at
// most one message out.

#include <optional>

#include "base/bytes.h"
#include "base/ip.h"
#include "net/ethernet.h"

namespace sandbox::net {

constexpr uint16_t kDhcpServerPort = 67;
constexpr uint16_t kDhcpClientPort = 68;

struct DhcpLease {
  MacAddress client_mac;
  Ipv4 client_ip;
  Ipv4 server_ip;  // also the router and the DNS server
  uint8_t prefix = 29;
  uint16_t mtu = 1500;
  uint32_t seconds = 86400;
};

struct DhcpReply {
  Bytes message;        // UDP payload
  Ipv4 destination_ip;  // the leased address, or 255.255.255.255
  MacAddress destination_mac;
};

// The answer to one client message; nullopt for what deserves none (not DHCP, another client,
// release, decline).
std::optional<DhcpReply> answer_dhcp(const DhcpLease& lease, ByteView message);

}  // namespace sandbox::net
