// fuzz-libs: sandbox_net
// Frames as the guest may send them: the input is a sequence of 16-bit lengths and frames. A first
// byte per frame decides how much of a valid frame is put around the bytes, so that the fuzzer
// reaches the inner parsers without guessing MAC addresses and checksums.

#include <algorithm>
#include <cstdlib>

#include "net/link.h"

namespace {

using namespace sandbox;       // NOLINT
using namespace sandbox::net;  // NOLINT

constexpr MacAddress kGuest{{0x52, 0x54, 0, 0x12, 0x34, 0x56}};
constexpr MacAddress kGateway{{0x52, 0x55, 0xC0, 0, 0, 1}};
constexpr Ipv4 kGuestIp{0xC0000002};
constexpr Ipv4 kGatewayIp{0xC0000001};

class CheckingWire final : public Wire {
 public:
  [[nodiscard]] int fd() const override { return -1; }
  Status receive(const Handler&) override { return {}; }
  std::span<uint8_t> begin_frame(size_t size) override {
    if (size > kMaxFrame) std::abort();
    begun_.resize(size);
    return begun_;
  }
  // Whatever is sent must itself be a frame of ours.
  void commit_frame() override {
    const auto frame = parse_ethernet(begun_);
    if (!frame || frame->source != kGateway) std::abort();
    Ipv4Packet packet;
    if (frame->type == kTypeIpv4 && parse_ipv4(frame->payload, packet) != Ipv4Error::kNone)
      std::abort();
  }
  Status flush() override { return {}; }
  [[nodiscard]] bool blocked() const override { return false; }

 private:
  Bytes begun_;
};

// Nothing may come up whose source is not the leased address, and every view must be readable.
class CheckingUpper final : public Link::Upper {
 public:
  explicit CheckingUpper(Link*& link) : link_(link) {}
  void on_tcp(const Ipv4Packet& packet) override { check(packet); }
  void on_udp(const Ipv4Packet& packet, const UdpDatagram& datagram) override {
    check(packet);
    touch(datagram.payload);
    link_->send_udp(packet.destination, datagram.destination_port, datagram.source_port,
                    datagram.payload);
    link_->send_unreachable(Unreachable::kPort, packet.whole);
  }
  void on_echo_request(const Ipv4Packet& packet, const IcmpEcho& echo) override {
    check(packet);
    link_->send_echo_reply(packet.destination, echo.identifier, echo.sequence, echo.payload);
  }
  void on_first_drop(Drop drop, std::string_view) override { (void)drop_name(drop); }

 private:
  void check(const Ipv4Packet& packet) {
    if (packet.source != kGuestIp || packet.is_fragment()) std::abort();
    touch(packet.whole);
    touch(packet.payload);
  }
  void touch(ByteView view) {
    for (const uint8_t b : view) sum_ = static_cast<uint8_t>(sum_ + b);
  }
  Link*& link_;
  volatile uint8_t sum_ = 0;
};

Bytes wrap(uint8_t how, ByteView bytes) {
  Bytes out;
  const auto protocol = std::array<uint8_t, 4>{1, 6, 17, 50}[how >> 2 & 3];
  switch (how & 3) {
    case 0:
      return {bytes.begin(), bytes.end()};
    case 1: {
      out.resize(kEthernetHeader);
      write_ethernet(out.data(), kGateway, kGuest, how & 4 ? kTypeArp : kTypeIpv4);
      break;
    }
    default: {
      const size_t size = std::min<size_t>(bytes.size(), 65000);
      out.resize(kEthernetHeader + kIpv4Header);
      write_ethernet(out.data(), kGateway, kGuest, kTypeIpv4);
      const FragmentPlace place{uint16_t(how >> 6), size_t{8} * (how >> 4 & 3), (how & 32) != 0};
      if ((how & 3) == 2)
        write_ipv4(out.data() + kEthernetHeader, kGuestIp, kGatewayIp, protocol, size);
      else
        write_ipv4_fragment(out.data() + kEthernetHeader, kGuestIp, {0x08080808}, protocol, size,
                            place);
      bytes = bytes.first(size);
    }
  }
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  CheckingWire wire;
  Link* self = nullptr;
  CheckingUpper upper(self);
  Link link({kGuest, kGateway, kGuestIp, kGatewayIp, 29, 1500}, wire, upper);
  self = &link;
  ByteReader in({data, size});
  Instant now;
  while (in.remaining() > 3) {
    const uint8_t how = in.u8();
    const size_t length = std::min<size_t>(in.be16(), in.remaining());
    link.receive(wrap(how, in.take(length)), now);
    now = now + std::chrono::milliseconds(700);
  }
  return 0;
}
