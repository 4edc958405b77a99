#pragma once
// Which proxy the network of a sandbox goes through: what --upstream-proxy says, else what the
// variables of this shell say, as programs on this host would take it.

#include <optional>
#include <string>

#include "base/result.h"
#include "supervisor/spec.h"

namespace sandbox::cli {

struct ProxyChoice {
  std::string host;  // a name or an address
  uint16_t port = 0;
  std::string authorization;  // empty: no user was named
  std::string no_proxy;
  std::string from;  // "--upstream-proxy", "https_proxy"

  [[nodiscard]] std::string text() const;  // "proxy.example.org:3128", without the user
};

// `flag`: http://[USER:PASSWORD@]HOST:PORT, or "none"; nullopt: not given. Variables in the order
// https_proxy, http_proxy, all_proxy, each before its form in capitals; an empty one is unset.
// No message quotes a password.
Result<std::optional<ProxyChoice>> choose_proxy(const std::optional<std::string>& flag,
                                                const char* (*outside)(const char*));

// Looks its name up, as programs of this host do.
Result<ProxySpec> locate_proxy(const ProxyChoice& choice);

}  // namespace sandbox::cli
