#include "gateway/stand_ins.h"

namespace sandbox::gateway {

namespace {

constexpr uint32_t kPool = 0xC6130000;  // 198.19.0.0
constexpr uint32_t kMask = 0xFFFF0000;
constexpr uint32_t kLast = 0xFFFE;  // neither the network's own address nor its broadcast
static_assert(kLast > Ledger::kMaxAddresses);

}  // namespace

bool StandIns::in_pool(const IpAddress& address) {
  return address.is_v4() && (address.v4().value & kMask) == kPool;
}

std::optional<Ipv4> StandIns::vouch(Ledger& ledger, const policy::HostName& name, Instant now) {
  std::optional<IpAddress> address = ledger.address_of(name);
  while (!address) {
    last_ = last_ % kLast + 1;
    const IpAddress next = Ipv4{kPool + last_};
    if (!ledger.knows(next)) address = next;
  }
  if (!ledger.vouch(*address, name, {}, Duration::zero(), now)) return std::nullopt;
  return address->v4();
}

}  // namespace sandbox::gateway
