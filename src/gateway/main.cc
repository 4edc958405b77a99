// sandbox-gateway: see docs/processes.md for its descriptors, gateway.h for how it runs.

#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdlib>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "gateway/gateway.h"

namespace sandbox::gateway {
namespace {

constexpr int kConfigFd = 3;
constexpr int kControlFd = 4;
constexpr int kWireFd = 5;
constexpr int kRecordsFd = 6;
constexpr size_t kMaxConfig = 4 << 20;

// What the loop, the wire, the flows and the resolver call once everything is open. No file, no
// exec, no new process, no socket but towards the world: the families and types are listed below.
const std::vector<std::string_view> kCalls = {
    "epoll_wait", "epoll_pwait", "epoll_ctl",   "readv",   "writev",   "recvfrom",
    "recvmsg",    "sendto",      "sendmsg",     "connect", "shutdown", "getsockopt",
    "setsockopt", "fcntl",       "getsockname", "accept4", "poll",     "ppoll"};
const std::vector<confine::SocketRule> kSockets = {
    {AF_INET, SOCK_STREAM},  {AF_INET, SOCK_DGRAM},  {AF_INET, SOCK_DGRAM, IPPROTO_ICMP},
    {AF_INET6, SOCK_STREAM}, {AF_INET6, SOCK_DGRAM}, {AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6}};

Status confine_self() {
  confine::forbid_core_files();
  TRY(confine::drop_privileges());
  // Where the kernel has no Landlock the list below still stands: no call in it names a file.
  Status landlock = confine::landlock_none(true);
  if (!landlock && landlock.error().code != Code::kUnavailable) return landlock;
  return confine::seccomp_allow(kCalls, kSockets);
}

Status serve(Fd control) {
  confine::raise_descriptor_limit();
  Fd config_fd(kConfigFd);
  ASSIGN(const std::string text, read_all(config_fd.get(), kMaxConfig));
  config_fd.reset();
  ASSIGN(GatewayConfig config, parse_config(text));
  ASSIGN(const auto loop, EventLoop::create());
  ASSIGN(const auto gateway, Gateway::create(*loop, std::move(config),
                                             {Fd(kWireFd), std::move(control), Fd(kRecordsFd)}));
  TRY(confine_self());
  return gateway->run();
}

}  // namespace
}  // namespace sandbox::gateway

int main() {
  using namespace sandbox;           // NOLINT
  using namespace sandbox::gateway;  // NOLINT
  log::set_program("sandbox-gateway");
  std::signal(SIGPIPE, SIG_IGN);
  // One arena, and what is freed at its top goes back to the host.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  Fd control(kControlFd);
  auto report = control.duplicate();
  const Status status = serve(std::move(control));
  if (status) return EXIT_SUCCESS;
  log::error("{}", status.error().message);
  if (report) {
    const std::string message = error_message(status.error());
    (void)::send(report->get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  return EXIT_FAILURE;
}
