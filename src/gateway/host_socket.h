#pragma once
// Sockets of the host towards the world, and how much of connecting may be under way at once.

#include <cstdint>
#include <unordered_map>

#include "base/fd.h"
#include "base/ip.h"
#include "base/result.h"

namespace sandbox::gateway {

enum class HostSocketKind { kStream, kDatagram, kPing };

// A non-blocking socket connected, or on its way, to the address. kPing: the kernel's unprivileged
// ICMP echo socket; the port is ignored. The errno of a failure is in `error`.
struct HostSocket {
  Fd fd;
  bool in_progress = false;
  int error = 0;
};
HostSocket connect_host(HostSocketKind kind, const IpAddress& address, uint16_t port);

// SO_ERROR, which clears it.
int socket_error(int fd);
// Closes with RST rather than FIN.
void abort_socket(Fd& fd);

// At most 2048 connects under way, 64 of them to one address: a guest cannot make the host look
// like it floods somebody.
class ConnectBudget {
 public:
  static constexpr size_t kTotal = 2048;
  static constexpr size_t kPerAddress = 64;

  [[nodiscard]] bool take(const IpAddress& address);
  void give_back(const IpAddress& address);
  [[nodiscard]] size_t in_use() const { return total_; }

 private:
  struct Hash {
    size_t operator()(const IpAddress& address) const noexcept;
  };
  std::unordered_map<IpAddress, size_t, Hash> by_address_;
  size_t total_ = 0;
};

}  // namespace sandbox::gateway
