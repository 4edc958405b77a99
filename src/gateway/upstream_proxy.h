#pragma once
// The HTTP proxy that the host needs to reach the world, where there is one. Then every connection
// to the world is a CONNECT to it, except to what its bypass list names and to the host's own
// loopback (host.internal).

#include <cstdint>
#include <string>
#include <vector>

#include "base/ip.h"
#include "policy/bypass.h"

namespace sandbox::gateway {

struct UpstreamProxy {
  std::string host;  // as the user wrote it, a name or an address
  uint16_t port = 0;
  std::vector<IpAddress>
      addresses;              // of the host, in the order to try them; none: it was not found
  std::string authorization;  // value of Proxy-Authorization; empty: none. Never recorded
  policy::BypassList bypass;

  [[nodiscard]] std::string text() const;  // "proxy.example.org:3128", without the credentials
};

}  // namespace sandbox::gateway
