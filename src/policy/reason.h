#pragma once
// Why something was allowed or refused; the text forms appear in records and never change.

#include <optional>
#include <string_view>

namespace sandbox::policy {

enum class Reason {
  kAllowRule,          // allow-rule
  kDenyRule,           // deny-rule
  kNoAllowRule,        // no-allow-rule
  kUnresolvedAddress,  // unresolved-address  no name was vouched for the address and no rule names
                       // it
  kExpiredAddress,     // expired-address     the name no longer resolves to it
  kSniDenied,          // sni-denied
  kSniUnreadable,      // sni-unreadable
  kHostDenied,         // host-denied
  kEch,                // ech                 the real server name would be invisible
  kQuic,               // quic                UDP 443
  kRebinding,          // rebinding           a name resolves where names may not lead
  kFlowLimit,          // flow-limit
  kUpstreamProxy,      // upstream-proxy      the proxy refused it, is down, or cannot carry it
};

std::string_view text(Reason reason);
std::optional<Reason> parse_reason(std::string_view text);

}  // namespace sandbox::policy
