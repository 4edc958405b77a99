#include "policy/reach.h"

#include <fmt/format.h>

namespace sandbox::policy {

namespace {

std::string port_text(const HostPattern& rule, std::string_view protocol,
                      std::string_view every_port) {
  if (rule.port()) return fmt::format("{} port {}", protocol, *rule.port());
  return std::string(every_port);
}

std::string what(const HostPattern& rule) {
  switch (rule.scope()) {
    case Scope::kUdp:
      return port_text(rule, "UDP", "every UDP port but 443 and those of resolvers");
    case Scope::kIcmp:
      return "ping";
    case Scope::kPlain:
      return port_text(rule, "TCP", "") + " (the server may speak first, no name is asked for)";
    case Scope::kProxy:
      return port_text(rule, "TCP", "") +
             " (an HTTP proxy: what is asked of it is judged by the rules as well)";
    case Scope::kAny:
      break;
  }
  return port_text(rule, "TCP",
                   "ping and every TCP port but those of resolvers (53, 853, 5353, 5355)");
}

std::string where(const HostPattern& rule) {
  if (rule.is_host_internal()) return "this host's own loopback";
  if (const auto address = rule.exact_address()) return address->text();
  if (const Cidr* network = rule.network())
    return fmt::format("{}, but not {}addresses of this host in it", network->text(),
                       rule.is_wholly_never_by_name() ? "" : "loopback, link-local or ");
  const HostName* zone = rule.zone_apex();
  const std::string names = zone != nullptr
                                ? fmt::format("{} and every name below it", zone->text())
                                : rule.exact_name()->text();
  if (!rule.range()) return fmt::format("{}, wherever it resolves in public space", names);
  return fmt::format("{}, where it resolves inside {}", names, rule.range()->text());
}

}  // namespace

std::string allow_reach(const HostPattern& rule) {
  return fmt::format("{} of {}", what(rule), where(rule));
}

}  // namespace sandbox::policy
