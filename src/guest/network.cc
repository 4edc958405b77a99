#include "guest/network.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace sandbox::guest {
namespace {

constexpr const char* kDevice = "eth0";  // the only one there is (contract N1)

sockaddr socket_address(Ipv4 address) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address.value);
  sockaddr out{};
  static_assert(sizeof in == sizeof out);
  std::memcpy(&out, &in, sizeof out);
  return out;
}

Ipv4 netmask(uint8_t prefix) {
  return Ipv4{prefix == 0 ? 0 : ~uint32_t{0} << (32U - prefix)};
}

class Device {
 public:
  static Result<Device> open() {
    Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return fail_errno(errno, "socket");
    return Device(std::move(socket));
  }

  template <class Fill>
  Status set(unsigned long what, std::string_view activity, Fill fill) const {
    ifreq request{};
    std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
    fill(request);
    if (::ioctl(socket_.get(), what, &request) != 0)
      return fail_errno(errno, fmt::format("{} of {}", activity, kDevice));
    return {};
  }

  [[nodiscard]] Status add_default_route(Ipv4 gateway) const {
    rtentry route{};
    route.rt_dst = socket_address(Ipv4{0});
    route.rt_genmask = socket_address(Ipv4{0});
    route.rt_gateway = socket_address(gateway);
    route.rt_flags = RTF_UP | RTF_GATEWAY;
    if (::ioctl(socket_.get(), SIOCADDRT, &route) != 0 && errno != EEXIST)
      return fail_errno(errno, "set the default route");
    return {};
  }

 private:
  explicit Device(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

}  // namespace

Status configure_network(const channel::Network& network) {
  ASSIGN(const Device device, Device::open());
  TRY(device.set(SIOCSIFHWADDR, "set the MAC address", [&](ifreq& request) {
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    std::copy(network.mac.begin(), network.mac.end(), request.ifr_hwaddr.sa_data);
  }));
  TRY(device.set(SIOCSIFMTU, "set the MTU",
                 [&](ifreq& request) { request.ifr_mtu = static_cast<int>(network.mtu); }));
  TRY(device.set(SIOCSIFADDR, "set the address",
                 [&](ifreq& request) { request.ifr_addr = socket_address(network.address); }));
  TRY(device.set(SIOCSIFNETMASK, "set the netmask", [&](ifreq& request) {
    request.ifr_netmask = socket_address(netmask(network.prefix));
  }));
  TRY(device.set(SIOCSIFFLAGS, "raise",
                 [&](ifreq& request) { request.ifr_flags = IFF_UP | IFF_RUNNING; }));
  return device.add_default_route(network.gateway);
}

}  // namespace sandbox::guest
