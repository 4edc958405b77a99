#pragma once
// The host's resolvers, as resolv.conf(5) names them.

#include <string>
#include <string_view>
#include <vector>

namespace sandbox {

// Addresses of the `nameserver` lines, in order, at most 3 (MAXNS of glibc). Lines that are none
// are passed over, as glibc does; no line at all means 127.0.0.1, as it does there.
std::vector<std::string> parse_nameservers(std::string_view resolv_conf);

}  // namespace sandbox
