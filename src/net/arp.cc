#include "net/arp.h"

#include <algorithm>

namespace sandbox::net {

namespace {

constexpr uint16_t kHardwareEthernet = 1;

MacAddress take_mac(ByteReader& in) {
  MacAddress mac;
  std::ranges::copy(in.take(6), mac.bytes.begin());
  return mac;
}

}  // namespace

std::optional<ArpPacket> parse_arp(ByteView bytes) {
  ByteReader in(bytes);
  const bool supported =
      in.be16() == kHardwareEthernet && in.be16() == kTypeIpv4 && in.u8() == 6 && in.u8() == 4;
  if (!supported) return std::nullopt;
  ArpPacket out;
  out.operation = in.be16();
  out.sender_mac = take_mac(in);
  out.sender_ip = {in.be32()};
  out.target_mac = take_mac(in);
  out.target_ip = {in.be32()};
  const bool known = out.operation == ArpPacket::kRequest || out.operation == ArpPacket::kReply;
  if (!in.ok() || !known) return std::nullopt;
  return out;
}

void write_arp(uint8_t* out, const ArpPacket& packet) {
  ByteWriter w;
  w.be16(kHardwareEthernet);
  w.be16(kTypeIpv4);
  w.u8(6);
  w.u8(4);
  w.be16(packet.operation);
  w.bytes(packet.sender_mac.bytes);
  w.be32(packet.sender_ip.value);
  w.bytes(packet.target_mac.bytes);
  w.be32(packet.target_ip.value);
  std::ranges::copy(w.view(), out);
}

}  // namespace sandbox::net
