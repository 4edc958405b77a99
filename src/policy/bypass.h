#pragma once
// BypassList: the destinations that do not go through an upstream proxy, as NO_PROXY names them.
//
// Entries are separated by commas or white space and read as curl reads them:
//
//   *               everything
//   example.org     that name and every name below it; the same with a leading or a trailing dot
//   192.0.2.7       that address; the same for IPv6, with or without brackets
//   10.0.0.0/8      the addresses of the network
//
// A name is never compared with an address: what a name resolves to is not asked. An entry that is
// none of these (a port, a star inside a name) matches nothing: what it meant then goes through the
// proxy, which is the side to err on.

#include <string_view>
#include <vector>

#include "base/ip.h"
#include "policy/host_name.h"

namespace sandbox::policy {

class BypassList {
 public:
  static constexpr size_t kMaxEntries = 1024;  // further ones match nothing

  BypassList() = default;  // nothing
  static BypassList parse(std::string_view text);

  [[nodiscard]] bool matches(const HostName& name) const;
  [[nodiscard]] bool matches(const IpAddress& address) const;

 private:
  void add(std::string_view entry);

  bool everything_ = false;
  std::vector<HostName> zones_;
  std::vector<Cidr> networks_;
};

}  // namespace sandbox::policy
