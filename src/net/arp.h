#pragma once
// ARP (RFC 826) for IPv4 over Ethernet.

#include <optional>

#include "base/ip.h"
#include "net/ethernet.h"

namespace sandbox::net {

constexpr size_t kArpPacket = 28;

struct ArpPacket {
  static constexpr uint16_t kRequest = 1;
  static constexpr uint16_t kReply = 2;
  uint16_t operation = 0;
  MacAddress sender_mac;
  Ipv4 sender_ip;
  MacAddress target_mac;
  Ipv4 target_ip;
};

std::optional<ArpPacket> parse_arp(ByteView bytes);
void write_arp(uint8_t* out, const ArpPacket& packet);  // kArpPacket bytes

}  // namespace sandbox::net
