#pragma once
// Frames for the tests of the link, and a wire that keeps what was sent.

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include "net/link.h"

namespace sandbox::net::test {

inline const MacAddress kGuestMac{{0x52, 0x54, 0, 0x12, 0x34, 0x56}};
inline const MacAddress kGatewayMac{{0x52, 0x55, 0xC0, 0, 0, 1}};
constexpr Ipv4 kGuestIp{0xC0000002};    // 192.0.0.2
constexpr Ipv4 kGatewayIp{0xC0000001};  // 192.0.0.1
constexpr Ipv4 kServerIp{0x08080404};   // 8.8.4.4

inline LinkConfig link_config(uint16_t mtu = 1500) {
  return {kGuestMac, kGatewayMac, kGuestIp, kGatewayIp, 29, mtu};
}

class MemoryWire final : public Wire {
 public:
  [[nodiscard]] int fd() const override { return -1; }
  Status receive(const Handler&) override { return {}; }
  std::span<uint8_t> begin_frame(size_t size) override {
    if (full) return {};
    begun_.assign(size, 0xEE);
    return begun_;
  }
  void commit_frame() override { sent.push_back(begun_); }
  Status flush() override { return {}; }
  [[nodiscard]] bool blocked() const override { return false; }

  std::vector<Bytes> sent;
  bool full = false;

 private:
  Bytes begun_;
};

inline Bytes frame(const MacAddress& to, const MacAddress& from, uint16_t type, ByteView payload) {
  Bytes out(kEthernetHeader + payload.size());
  write_ethernet(out.data(), to, from, type);
  std::ranges::copy(payload, out.begin() + kEthernetHeader);
  return out;
}

inline Bytes packet(Ipv4 source, Ipv4 destination, uint8_t protocol, ByteView payload) {
  Bytes out(kIpv4Header + payload.size());
  write_ipv4(out.data(), source, destination, protocol, payload.size());
  std::ranges::copy(payload, out.begin() + kIpv4Header);
  return out;
}

inline Bytes fragment(Ipv4 destination, uint8_t protocol, ByteView payload, FragmentPlace place) {
  Bytes out(kIpv4Header + payload.size());
  write_ipv4_fragment(out.data(), kGuestIp, destination, protocol, payload.size(), place);
  std::ranges::copy(payload, out.begin() + kIpv4Header);
  return out;
}

inline Bytes udp(Ipv4 source, uint16_t source_port, Ipv4 destination, uint16_t port,
                 ByteView payload) {
  Bytes out(kUdpHeader + payload.size());
  std::ranges::copy(payload, out.begin() + kUdpHeader);
  write_udp(out.data(), source, source_port, destination, port, payload.size());
  return out;
}

inline Bytes guest_frame(ByteView ip_packet) {
  return frame(kGatewayMac, kGuestMac, kTypeIpv4, ip_packet);
}

}  // namespace sandbox::net::test
