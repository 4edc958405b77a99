#pragma once
// Ethernet II frames, without the preamble and the frame check sequence (the virtual wire carries
// neither).

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace sandbox::net {

struct MacAddress {
  std::array<uint8_t, 6> bytes{};
  friend auto operator<=>(const MacAddress&, const MacAddress&) = default;
  static std::optional<MacAddress> parse(
      std::string_view text);  // "52:54:00:12:34:56", either case
  static constexpr MacAddress broadcast() { return {{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}}; }
  [[nodiscard]] bool is_group() const { return (bytes[0] & 1) != 0; }  // broadcast or multicast
  [[nodiscard]] std::string text() const;
};

constexpr size_t kEthernetHeader = 14;
constexpr uint16_t kTypeIpv4 = 0x0800;
constexpr uint16_t kTypeArp = 0x0806;
constexpr uint16_t kTypeVlan = 0x8100;         // 802.1Q
constexpr uint16_t kTypeServiceVlan = 0x88A8;  // 802.1ad
constexpr uint16_t kTypeIpv6 = 0x86DD;

struct EthernetFrame {
  MacAddress destination;
  MacAddress source;
  uint16_t type = 0;
  ByteView payload;  // may carry padding up to the 60 bytes of a minimal frame
};

std::optional<EthernetFrame> parse_ethernet(ByteView frame);
// `out` has room for kEthernetHeader bytes.
void write_ethernet(uint8_t* out, const MacAddress& destination, const MacAddress& source,
                    uint16_t type);

}  // namespace sandbox::net
