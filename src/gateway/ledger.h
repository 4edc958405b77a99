#pragma once
// The ledger: which names were vouched for which address, and until when.
//
// A pair (address, name asked) enters when a resolver's answer for an allowed name led to the
// address, and lives for its TTL, at least 10 minutes: programs resolve once and connect later. A
// pair that an open flow holds does not expire and is not evicted. An expired pair stays for a
// while, so that a dial to it can be resolved again rather than refused.
//
// Limits: 8192 addresses and 16384 pairs (a guest allowed a whole zone can invent names without
// end). When full, the address unused for longest and held by no flow goes; if all are held,
// nothing enters. 256 names of one address, since each flow to it holds them all: beyond that the
// pair nearest to its end goes.

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/host_name.h"

namespace sandbox::gateway {

class Ledger {
 public:
  static constexpr size_t kMaxAddresses = 8192;
  static constexpr size_t kMaxPairs = 16384;
  static constexpr size_t kMaxNames = 256;  // of one address
  static constexpr Duration kMinLife = std::chrono::minutes(10);

  struct Pair {
    policy::HostName name;  // as it was asked for
    std::vector<policy::HostName>
        chain;  // what the name is an alias of; these can deny, never allow
    Instant expiry;
  };
  // While a copy of it exists, the pairs in it are held.
  using Hold = std::vector<std::shared_ptr<const Pair>>;

  struct Found {
    std::vector<policy::HostName> names;    // live or held
    std::vector<policy::HostName> aliases;  // of their chains
    std::vector<policy::HostName> expired;
    Hold hold;  // the pairs of `names`
  };

  // Enters or renews. False: full, and everything in it is held.
  [[nodiscard]] bool vouch(const IpAddress& address, const policy::HostName& name,
                           std::span<const policy::HostName> chain, Duration ttl, Instant now);
  // Counts as use of the address.
  Found find(const IpAddress& address, Instant now);
  // One address of the name, expired or not.
  [[nodiscard]] std::optional<IpAddress> address_of(const policy::HostName& name) const;
  [[nodiscard]] bool knows(const IpAddress& address) const { return entries_.contains(address); }
  // Addresses at which the name is live: a client may fall back from one to the next.
  [[nodiscard]] size_t addresses_of(const policy::HostName& name, Instant now) const;

  [[nodiscard]] size_t addresses() const { return entries_.size(); }
  [[nodiscard]] size_t pairs() const { return pairs_; }

 private:
  struct Entry {
    IpAddress address;
    std::vector<std::shared_ptr<Pair>> pairs;
  };
  using Order = std::list<Entry>;  // front: used last
  struct AddressHash {
    size_t operator()(const IpAddress& address) const noexcept;
  };

  Order::iterator touch(Order::iterator entry);
  [[nodiscard]] bool make_room(const Entry* keep);
  [[nodiscard]] bool make_room_in(Entry& entry);
  void forget(Order::iterator entry);
  void forget_name(const Entry& entry, const policy::HostName& name);

  Order order_;
  std::unordered_map<IpAddress, Order::iterator, AddressHash> entries_;
  std::unordered_map<policy::HostName, std::vector<IpAddress>> by_name_;
  size_t pairs_ = 0;
};

}  // namespace sandbox::gateway
