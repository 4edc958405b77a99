#pragma once
// Unix sockets between our own processes, and descriptors sent over them.

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/ip.h"
#include "base/result.h"

namespace sandbox {

enum class SocketKind { kStream, kSeqPacket };

// Both ends close-on-exec and blocking.
Result<std::pair<Fd, Fd>> socket_pair(SocketKind kind);
// SO_SNDBUF and SO_RCVBUF; best effort (the kernel caps it).
void set_socket_buffers(int fd, int bytes);

// One message with descriptors attached (at most 16).
Status send_with_fds(int fd, std::string_view bytes, const std::vector<int>& fds);
struct Received {
  std::string bytes;  // empty: the peer closed
  std::vector<Fd> fds;
};
Result<Received> receive_with_fds(int fd, size_t limit);

// An address and port as the socket calls take them, and back.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
SocketAddress to_socket_address(const IpAddress& address, uint16_t port);
IpAddress to_ip_address(const sockaddr_storage& address);
uint16_t port_of(const sockaddr_storage& address);

}  // namespace sandbox
