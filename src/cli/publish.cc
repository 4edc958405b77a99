#include "cli/publish.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/socket.h"
#include "base/text.h"

namespace sandbox::cli {

namespace {

constexpr Ipv4 kLoopback{0x7F000001};
constexpr int kBacklog = 1024;

tl::unexpected<Error> wrong(std::string_view word, std::string_view what) {
  return fail(Error{Code::kInvalid, fmt::format("-p {}: {}", word, what),
                    "the form is [[ADDRESS:]HOST:]GUEST: -p 8080:80, -p 127.0.0.1:8080:80, "
                    "-p '[::1]:8080:80', or -p 80 for a free port of this host"});
}

Result<uint16_t> parse_port(std::string_view word, std::string_view text, uint64_t least) {
  if (const auto number = parse_decimal(text); number && *number >= least && *number <= UINT16_MAX)
    return static_cast<uint16_t>(*number);
  if (text.find('-') != std::string_view::npos)
    return wrong(word, "ranges are not known; repeat -p for each port");
  return wrong(word, fmt::format("'{}' is not a port from {} to 65535", text, least));
}

Result<IpAddress> parse_address(std::string_view word, std::string_view text) {
  const bool bracketed = text.size() > 2 && text.front() == '[' && text.back() == ']';
  const auto address = IpAddress::parse(bracketed ? text.substr(1, text.size() - 2) : text);
  if (address && bracketed != address->is_v4()) return *address;
  return wrong(word, fmt::format("'{}' is not an address (an IPv6 one stands in brackets)", text));
}

std::string shown(const IpAddress& address, uint16_t port) {
  return fmt::format("port {} of {}", port, address.text());
}

Error bind_error(int number, const IpAddress& address, uint16_t port) {
  switch (number) {
    case EADDRINUSE:
      return {Code::kExists, fmt::format("{} is in use already", shown(address, port)),
              "choose another, or leave it out for a free one: -p GUEST"};
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return {Code::kInvalid, fmt::format("{} is no address of this host", address.text()),
              "ip address lists those that are"};
    case EACCES:
    case EPERM:
      return {Code::kPermission, fmt::format("you may not listen at {}", shown(address, port)),
              "choose a port from 1024 up"};
    default:
      return errno_error(number, fmt::format("listening at {}", shown(address, port)));
  }
}

}  // namespace

Result<PublishSpec> parse_publish(std::string_view word) {
  std::string_view rest = word;
  if (rest.ends_with("/tcp")) rest.remove_suffix(4);
  if (rest.find('/') != std::string_view::npos) return wrong(word, "only TCP can be published");
  PublishSpec spec;
  const size_t guest_at = rest.rfind(':');
  const size_t guest_begin = guest_at == std::string_view::npos ? 0 : guest_at + 1;
  ASSIGN(spec.guest, parse_port(word, rest.substr(guest_begin), 1));
  if (guest_at == std::string_view::npos) return spec;
  rest = rest.substr(0, guest_at);
  const size_t host_at = rest.rfind(':');
  const bool only_port = host_at == std::string_view::npos;
  const std::string_view host = only_port ? rest : rest.substr(host_at + 1);
  if (!host.empty()) {
    ASSIGN(const uint16_t port, parse_port(word, host, 0));
    if (port != 0) spec.host = port;
  }
  if (only_port) return spec;
  ASSIGN(spec.address, parse_address(word, rest.substr(0, host_at)));
  return spec;
}

Result<Listener> listen_at(const PublishSpec& spec) {
  const IpAddress address = spec.address.value_or(kLoopback);
  const uint16_t port = spec.host.value_or(0);
  Listener out;
  out.socket = Fd(::socket(address.is_v4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out.socket) return fail(bind_error(errno, address, port));
  const int on = 1;
  ::setsockopt(out.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // [::] is every IPv6 address, and not IPv4 as well: only what was given.
  if (!address.is_v4()) ::setsockopt(out.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const SocketAddress to = to_socket_address(address, port);
  if (::bind(out.socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) < 0 ||
      ::listen(out.socket.get(), kBacklog) < 0)
    return fail(bind_error(errno, address, port));
  SocketAddress at;
  at.size = sizeof at.storage;
  if (::getsockname(out.socket.get(), reinterpret_cast<sockaddr*>(&at.storage), &at.size) < 0)
    return fail_errno(errno, "getsockname");
  out.port = {address, port_of(at.storage), spec.guest};
  return out;
}

}  // namespace sandbox::cli
