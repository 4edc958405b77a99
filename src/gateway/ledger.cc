#include "gateway/ledger.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace sandbox::gateway {

namespace {

// A flow holds copies of the pointer; the ledger itself is one owner.
bool is_held(const std::shared_ptr<Ledger::Pair>& pair) {
  return pair.use_count() > 1;
}

}  // namespace

size_t Ledger::AddressHash::operator()(const IpAddress& address) const noexcept {
  return std::hash<std::string_view>()(as_text(address.bytes()));
}

Ledger::Order::iterator Ledger::touch(Order::iterator entry) {
  order_.splice(order_.begin(), order_, entry);
  return entry;
}

void Ledger::forget(Order::iterator entry) {
  for (const auto& pair : entry->pairs) forget_name(*entry, pair->name);
  pairs_ -= entry->pairs.size();
  entries_.erase(entry->address);
  order_.erase(entry);
}

void Ledger::forget_name(const Entry& entry, const policy::HostName& name) {
  const auto known = by_name_.find(name);
  std::erase(known->second, entry.address);
  if (known->second.empty()) by_name_.erase(known);
}

// For one more name of this address.
bool Ledger::make_room_in(Entry& entry) {
  if (entry.pairs.size() < kMaxNames) return true;
  const auto victim =
      std::min_element(entry.pairs.begin(), entry.pairs.end(), [](const auto& a, const auto& b) {
        return std::pair(is_held(a), a->expiry) < std::pair(is_held(b), b->expiry);
      });
  if (is_held(*victim)) return false;
  forget_name(entry, (*victim)->name);
  entry.pairs.erase(victim);
  --pairs_;
  return true;
}

// Makes room for one more pair, and for its address unless that is `keep`.
bool Ledger::make_room(const Entry* keep) {
  while (pairs_ >= kMaxPairs || (keep == nullptr && entries_.size() >= kMaxAddresses)) {
    auto victim = order_.end();
    for (auto it = order_.end(); it != order_.begin();) {
      --it;
      if (&*it == keep || std::any_of(it->pairs.begin(), it->pairs.end(), is_held)) continue;
      victim = it;
      break;
    }
    if (victim == order_.end()) return false;
    forget(victim);
  }
  return true;
}

bool Ledger::vouch(const IpAddress& address, const policy::HostName& name,
                   std::span<const policy::HostName> chain, Duration ttl, Instant now) {
  const Instant expiry = now + std::max(ttl, kMinLife);
  auto known = entries_.find(address);
  if (known != entries_.end()) {
    Entry& entry = *touch(known->second);
    for (const auto& pair : entry.pairs) {
      if (pair->name != name) continue;
      pair->expiry = std::max(pair->expiry, expiry);
      pair->chain.assign(chain.begin(), chain.end());
      return true;
    }
  }
  Entry* entry = known == entries_.end() ? nullptr : &*known->second;
  if (entry != nullptr && !make_room_in(*entry)) return false;
  if (!make_room(entry)) return false;
  if (entry == nullptr) {
    order_.push_front({address, {}});
    entries_.emplace(address, order_.begin());
    entry = &order_.front();
  }
  entry->pairs.push_back(std::make_shared<Pair>(Pair{name, {chain.begin(), chain.end()}, expiry}));
  by_name_[name].push_back(address);
  ++pairs_;
  return true;
}

Ledger::Found Ledger::find(const IpAddress& address, Instant now) {
  Found found;
  const auto known = entries_.find(address);
  if (known == entries_.end()) return found;
  std::unordered_set<std::string_view> seen;  // of the aliases
  for (const auto& pair : touch(known->second)->pairs) {
    if (pair->expiry <= now && !is_held(pair)) {
      found.expired.push_back(pair->name);
      continue;
    }
    found.names.push_back(pair->name);
    for (const policy::HostName& alias : pair->chain)
      if (seen.insert(alias.text()).second) found.aliases.push_back(alias);
    found.hold.push_back(pair);
  }
  return found;
}

std::optional<IpAddress> Ledger::address_of(const policy::HostName& name) const {
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return std::nullopt;
  return known->second.front();
}

size_t Ledger::addresses_of(const policy::HostName& name, Instant now) const {
  const auto known = by_name_.find(name);
  if (known == by_name_.end()) return 0;
  return static_cast<size_t>(
      std::count_if(known->second.begin(), known->second.end(), [&](const IpAddress& address) {
        const auto& pairs = entries_.at(address)->pairs;
        return std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
          return pair->name == name && pair->expiry > now;
        });
      }));
}

}  // namespace sandbox::gateway
