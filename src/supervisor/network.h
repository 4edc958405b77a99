#pragma once
// The guest's network, the same in every sandbox: 192.0.0.0/29 (RFC 7335) can be nobody's
// destination, so it hides no host.

#include "base/ip.h"

namespace sandbox::network {

inline constexpr Ipv4 kGateway{0xC0000001};  // 192.0.0.1
inline constexpr Ipv4 kGuest{0xC0000002};    // 192.0.0.2
inline constexpr uint8_t kPrefix = 29;
inline constexpr const char* kGatewayMac = "52:55:c0:00:00:01";

}  // namespace sandbox::network
