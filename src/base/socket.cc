#include "base/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace sandbox {

namespace {
constexpr size_t kMostFds = 16;
}

Result<std::pair<Fd, Fd>> socket_pair(SocketKind kind) {
  int fds[2];
  const int type = kind == SocketKind::kStream ? SOCK_STREAM : SOCK_SEQPACKET;
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0)
    return fail_errno(errno, "socketpair");
  return std::pair{Fd(fds[0]), Fd(fds[1])};
}

void set_socket_buffers(int fd, int bytes) {
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

Status send_with_fds(int fd, std::string_view bytes, const std::vector<int>& fds) {
  if (fds.size() > kMostFds) return fail(Code::kLimit, "too many descriptors in one message");
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return fail_errno(errno, "sendmsg");
  const auto count = static_cast<size_t>(sent);
  return count == bytes.size() ? Status{} : write_all(fd, bytes.substr(count));
}

Result<Received> receive_with_fds(int fd, size_t limit) {
  Received out;
  out.bytes.resize(limit);
  iovec part{out.bytes.data(), out.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return fail_errno(errno, "recvmsg");
  out.bytes.resize(static_cast<size_t>(got));
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
      out.fds.emplace_back(received);
    }
  }
  if ((message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0)
    return fail(Code::kProtocol, "a message was longer than {} bytes or {} descriptors", limit,
                kMostFds);
  return out;
}

SocketAddress to_socket_address(const IpAddress& address, uint16_t port) {
  SocketAddress out;
  if (address.is_v4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    v4.sin_addr.s_addr = htonl(address.v4().value);
    std::memcpy(&out.storage, &v4, out.size = sizeof v4);
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.bytes().data(), address.bytes().size());
    std::memcpy(&out.storage, &v6, out.size = sizeof v6);
  }
  return out;
}

IpAddress to_ip_address(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    return Ipv4{ntohl(v4.sin_addr.s_addr)};
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof v6);
  std::array<uint8_t, 16> bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return IpAddress::from_bytes(bytes);
}

uint16_t port_of(const sockaddr_storage& address) {
  sockaddr_in6 v6{};  // the port stands at the same place in both families
  std::memcpy(&v6, &address, sizeof v6);
  return ntohs(v6.sin6_port);
}

}  // namespace sandbox
