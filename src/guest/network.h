#pragma once
// The one network device, configured from the host's orders; no DHCP round trip stands between a
// start and the first command.

#include "base/result.h"
#include "channel/messages.h"

namespace sandbox::guest {

Status configure_network(const channel::Network& network);

}  // namespace sandbox::guest
