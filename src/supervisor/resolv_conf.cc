#include "supervisor/resolv_conf.h"

#include "base/ip.h"
#include "base/text.h"

namespace sandbox {

namespace {
constexpr size_t kMostServers = 3;
}

std::vector<std::string> parse_nameservers(std::string_view resolv_conf) {
  std::vector<std::string> servers;
  for (std::string_view line : split(resolv_conf, '\n')) {
    constexpr std::string_view kKeyword = "nameserver";
    if (!line.starts_with(kKeyword)) continue;
    line.remove_prefix(kKeyword.size());
    if (line.empty() || (line[0] != ' ' && line[0] != '\t')) continue;
    line = trim(line);
    line = line.substr(0, line.find_first_of(" \t#;"));
    const std::string_view without_zone = line.substr(0, line.find('%'));
    if (IpAddress::parse(without_zone) && servers.size() < kMostServers) servers.emplace_back(line);
  }
  if (servers.empty()) servers.emplace_back("127.0.0.1");
  return servers;
}

}  // namespace sandbox
