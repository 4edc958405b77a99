#include "gateway/host_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/socket.h"

namespace sandbox::gateway {

namespace {

Fd make_socket(HostSocketKind kind, bool v4) {
  const int family = v4 ? AF_INET : AF_INET6;
  const int ping = v4 ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6};
  const int type = kind == HostSocketKind::kStream ? SOCK_STREAM : SOCK_DGRAM;
  return Fd(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK,
                     kind == HostSocketKind::kPing ? ping : 0));
}

}  // namespace

HostSocket connect_host(HostSocketKind kind, const IpAddress& address, uint16_t port) {
  HostSocket out;
  out.fd = make_socket(kind, address.is_v4());
  if (!out.fd) {
    out.error = errno;
    return out;
  }
  if (kind == HostSocketKind::kStream) {
    // The guest has gathered its bytes already; gathering them again would only delay them.
    const int on = 1;
    ::setsockopt(out.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(out.fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  const SocketAddress to = to_socket_address(address, port);
  if (::connect(out.fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0)
    return out;
  if (errno == EINPROGRESS)
    out.in_progress = true;
  else
    out.error = errno;
  return out;
}

int socket_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0) return errno;
  return error;
}

void abort_socket(Fd& fd) {
  const linger at_once{1, 0};
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd.reset();
}

size_t ConnectBudget::Hash::operator()(const IpAddress& address) const noexcept {
  const auto& bytes = address.bytes();
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool ConnectBudget::take(const IpAddress& address) {
  if (total_ >= kTotal) return false;
  size_t& here = by_address_[address];
  if (here >= kPerAddress) return false;
  ++here;
  ++total_;
  return true;
}

void ConnectBudget::give_back(const IpAddress& address) {
  const auto it = by_address_.find(address);
  if (it == by_address_.end()) return;
  --total_;
  if (--it->second == 0) by_address_.erase(it);
}

}  // namespace sandbox::gateway
