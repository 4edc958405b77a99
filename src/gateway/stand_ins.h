#pragma once
// Addresses that stand for names. Behind an upstream proxy it is the proxy that resolves a name,
// and often nobody else can; but programs want an address to connect to. So each name gets one of
// 198.19.0.0/16 (RFC 2544: no destination of anybody's), vouched in the ledger for that name alone,
// and a connection to it becomes a CONNECT with the name. See
// docs/decisions/048-upstream-proxy.md.
//
// A name keeps its address for as long as the ledger remembers the pair. Addresses are given out in
// turn, so that one which was forgotten stands for another name only after all others of the pool.

#include <cstdint>
#include <optional>

#include "base/ip.h"
#include "gateway/ledger.h"

namespace sandbox::gateway {

class StandIns {
 public:
  [[nodiscard]] static bool in_pool(const IpAddress& address);
  // nullopt: the ledger is full of addresses in use.
  std::optional<Ipv4> vouch(Ledger& ledger, const policy::HostName& name, Instant now);

 private:
  uint32_t last_ = 0;  // within the pool
};

}  // namespace sandbox::gateway
