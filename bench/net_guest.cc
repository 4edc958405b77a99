// The guest of bench/machine_network.py: PID 1 of a machine that does one transfer and powers off.
//
//   netbench=DIRECTION,SERVER,PORT,ADDRESS/PREFIX,GATEWAY,MTU,MAC   on the kernel command line
//
// out: connects and sends until the server closes. in: connects, reads to the end, and answers with
// the number of bytes as eight bytes, little-endian, so that the server times what has arrived.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "guest/boot.h"
#include "guest/network.h"

namespace sandbox {
namespace {

struct Job {
  bool outwards = false;
  Ipv4 server;
  uint16_t port = 0;
  channel::Network network;
};

Result<std::array<uint8_t, 6>> parse_mac(std::string_view text) {
  std::array<uint8_t, 6> mac{};
  unsigned parts[6];
  if (std::sscanf(std::string(text).c_str(), "%2x:%2x:%2x:%2x:%2x:%2x", &parts[0], &parts[1],
                  &parts[2], &parts[3], &parts[4], &parts[5]) != 6)
    return fail(Code::kInvalid, "bad MAC '{}'", text);
  for (size_t i = 0; i < mac.size(); ++i) mac[i] = static_cast<uint8_t>(parts[i]);
  return mac;
}

Result<Ipv4> parse_ipv4(std::string_view text) {
  in_addr address{};
  if (::inet_pton(AF_INET, std::string(text).c_str(), &address) != 1)
    return fail(Code::kInvalid, "bad address '{}'", text);
  return Ipv4{ntohl(address.s_addr)};
}

Result<Job> parse_job(std::string_view command_line) {
  constexpr std::string_view kKey = "netbench=";
  for (const std::string_view word : split(trim(command_line), ' ')) {
    if (!word.starts_with(kKey)) continue;
    const auto parts = split(word.substr(kKey.size()), ',');
    if (parts.size() != 7) break;
    const auto net = split(parts[3], '/');
    const auto port = parse_decimal(parts[2]);
    const auto prefix = net.size() == 2 ? parse_decimal(net[1]) : std::nullopt;
    const auto mtu = parse_decimal(parts[5]);
    if (!port || !prefix || !mtu) break;
    Job job;
    job.outwards = parts[0] == "out";
    ASSIGN(job.server, parse_ipv4(parts[1]));
    job.port = static_cast<uint16_t>(*port);
    ASSIGN(job.network.address, parse_ipv4(net[0]));
    job.network.prefix = static_cast<uint8_t>(*prefix);
    ASSIGN(job.network.gateway, parse_ipv4(parts[4]));
    job.network.mtu = static_cast<uint32_t>(*mtu);
    ASSIGN(job.network.mac, parse_mac(parts[6]));
    return job;
  }
  return fail(Code::kInvalid, "no netbench=... on the kernel command line");
}

Result<Fd> connect_to(const Job& job) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(job.port);
  address.sin_addr.s_addr = htonl(job.server.value);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    return fail_errno(errno, "connect");
  return socket;
}

void transfer(int socket, bool outwards) {
  static std::array<char, 1 << 18> buffer;
  if (outwards) {
    while (::send(socket, buffer.data(), buffer.size(), MSG_NOSIGNAL) > 0) continue;
    return;
  }
  uint64_t total = 0;
  ssize_t n = 0;
  while ((n = ::recv(socket, buffer.data(), buffer.size(), 0)) > 0)
    total += static_cast<uint64_t>(n);
  (void)::send(socket, &total, sizeof total, MSG_NOSIGNAL);
}

Status run() {
  ASSIGN(const guest::Booted booted, guest::boot());
  ASSIGN(const std::string command_line, read_file("/proc/cmdline", 4096));
  ASSIGN(const Job job, parse_job(command_line));
  TRY(guest::configure_network(job.network));
  ASSIGN(const Fd socket, connect_to(job));
  transfer(socket.get(), job.outwards);
  return {};
}

}  // namespace
}  // namespace sandbox

int main() {
  sandbox::log::set_program("net_guest");
  if (const sandbox::Status ran = sandbox::run(); !ran) sandbox::log::line(ran.error().message);
  (void)::reboot(RB_POWER_OFF);
  while (true) ::pause();
}
