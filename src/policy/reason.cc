#include "policy/reason.h"

#include <array>
#include <utility>

namespace sandbox::policy {

namespace {

constexpr std::array<std::pair<Reason, std::string_view>, 13> kTexts = {{
    {Reason::kAllowRule, "allow-rule"},
    {Reason::kDenyRule, "deny-rule"},
    {Reason::kNoAllowRule, "no-allow-rule"},
    {Reason::kUnresolvedAddress, "unresolved-address"},
    {Reason::kExpiredAddress, "expired-address"},
    {Reason::kSniDenied, "sni-denied"},
    {Reason::kSniUnreadable, "sni-unreadable"},
    {Reason::kHostDenied, "host-denied"},
    {Reason::kEch, "ech"},
    {Reason::kQuic, "quic"},
    {Reason::kRebinding, "rebinding"},
    {Reason::kFlowLimit, "flow-limit"},
    {Reason::kUpstreamProxy, "upstream-proxy"},
}};

}  // namespace

std::string_view text(Reason reason) {
  for (const auto& [known, name] : kTexts)
    if (known == reason) return name;
  return {};  // unreachable: the table has every enumerator
}

std::optional<Reason> parse_reason(std::string_view text) {
  for (const auto& [reason, name] : kTexts)
    if (name == text) return reason;
  return std::nullopt;
}

}  // namespace sandbox::policy
