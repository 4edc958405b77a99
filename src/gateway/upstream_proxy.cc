#include "gateway/upstream_proxy.h"

#include <fmt/format.h>

namespace sandbox::gateway {

std::string UpstreamProxy::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace sandbox::gateway
