#include "cli/proxy_args.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/ip.h"
#include "base/text.h"
#include "net/http/connect.h"

namespace sandbox::cli {

namespace {

constexpr size_t kMostAddresses = 4;

// "a%20b" → "a b"; nullopt for a broken escape and for control bytes, which no header can carry.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    char byte = text.front();
    size_t length = 1;
    if (byte == '%') {
      const auto hex = from_hex(text.substr(1, 2));
      if (text.size() < 3 || !hex) return std::nullopt;
      byte = static_cast<char>(hex->front());
      length = 3;
    }
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) return std::nullopt;
    out += byte;
    text.remove_prefix(length);
  }
  return out;
}

Error wrong(std::string_view from, std::string_view what) {
  return {Code::kInvalid, fmt::format("{}: {}", from, what),
          "--upstream-proxy http://HOST:PORT, or --upstream-proxy none to use no proxy"};
}

Result<std::string> authorization_of(std::string_view from, std::string_view user_info) {
  const size_t colon = std::min(user_info.find(':'), user_info.size());
  const auto user = percent_decoded(user_info.substr(0, colon));
  const auto password = percent_decoded(user_info.substr(std::min(colon + 1, user_info.size())));
  if (!user || !password || user->find(':') != std::string::npos)
    return fail(wrong(from, "its user name or password is not percent-encoded as in a URL"));
  return http::basic_authorization(*user, *password);
}

Result<ProxyChoice> parse_proxy(std::string_view from, std::string_view url) {
  ProxyChoice out;
  out.from = from;
  std::string_view rest = url;
  // The first colon: a later one may be of a password, which no message may quote.
  if (const size_t mark = rest.find("://"); mark != rest.npos && mark == rest.find(':')) {
    const std::string scheme = to_lower(rest.substr(0, mark));
    if (scheme != "http")
      return fail(wrong(from, fmt::format("a proxy that is spoken to in {} is not supported, only "
                                          "http://",
                                          escape_terminal(scheme))));
    rest.remove_prefix(mark + 3);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    ASSIGN(out.authorization, authorization_of(from, rest.substr(0, at)));
    rest.remove_prefix(at + 1);
  }
  const auto authority = http::Authority::parse(rest);
  if (!authority)
    return fail(wrong(from, fmt::format("'{}' is not HOST:PORT", escape_terminal(rest))));
  if (!authority->port() || *authority->port() == 0)
    return fail(wrong(from, fmt::format("'{}' has no port", escape_terminal(rest))));
  out.host =
      authority->name() != nullptr ? authority->name()->text() : authority->address()->text();
  out.port = *authority->port();
  return out;
}

}  // namespace

std::string ProxyChoice::text() const {
  return host.find(':') != std::string::npos ? fmt::format("[{}]:{}", host, port)
                                             : fmt::format("{}:{}", host, port);
}

Result<std::optional<ProxyChoice>> choose_proxy(const std::optional<std::string>& flag,
                                                const char* (*outside)(const char*)) {
  const auto value = [&](const char* name) -> std::string_view {
    const char* text = outside(name);
    return text == nullptr ? "" : text;
  };
  std::string_view from = "--upstream-proxy";
  std::string_view url = flag ? std::string_view(*flag) : "";
  if (!flag) {
    for (const char* name :
         {"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) {
      if (value(name).empty()) continue;
      from = name;
      url = value(name);
      break;
    }
  }
  if (flag ? url == "none" : url.empty()) return std::nullopt;
  ASSIGN(ProxyChoice choice, parse_proxy(from, url));
  choice.no_proxy = value("no_proxy").empty() ? value("NO_PROXY") : value("no_proxy");
  return choice;
}

Result<ProxySpec> locate_proxy(const ProxyChoice& choice) {
  ProxySpec out{choice.host, choice.port, {}, choice.authorization, choice.no_proxy};
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(choice.host.c_str(), nullptr, &hints, &list);
  if (error != 0)
    return fail(Error{Code::kUnavailable,
                      fmt::format("the proxy {} ({}) is not found: {}", choice.text(), choice.from,
                                  ::gai_strerror(error)),
                      "--upstream-proxy http://ADDRESS:PORT, or --upstream-proxy none"});
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, &::freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) != 0 ||
        !IpAddress::parse(text.data()))
      continue;  // a link-local address with its zone
    const bool known = std::ranges::find(out.addresses, text.data()) != out.addresses.end();
    if (!known && out.addresses.size() < kMostAddresses) out.addresses.emplace_back(text.data());
  }
  if (out.addresses.empty())
    return fail(Code::kUnavailable, "the proxy {} ({}) has no address to connect to", choice.text(),
                choice.from);
  return out;
}

}  // namespace sandbox::cli
