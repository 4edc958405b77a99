#pragma once
// -p and `sandbox ports`: what is to be published, from words to listening sockets.
//
// The command line opens the sockets itself, so that an address in use is its own error; the
// sandbox's processes get them as they are and may make none.

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/ip.h"
#include "base/result.h"
#include "supervisor/control_messages.h"

namespace sandbox::cli {

// [[ADDRESS:]HOST:]GUEST
struct PublishSpec {
  std::optional<IpAddress> address;  // absent: IPv4 loopback
  std::optional<uint16_t> host;      // absent: one that is free
  uint16_t guest = 0;
  friend bool operator==(const PublishSpec&, const PublishSpec&) = default;
};
Result<PublishSpec> parse_publish(std::string_view word);

struct Listener {
  Fd socket;
  control::Port port;
};
Result<Listener> listen_at(const PublishSpec& spec);

}  // namespace sandbox::cli
