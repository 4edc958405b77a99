#include "differential/kernel_subject.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/process.h"

namespace sandbox::tcp::differential {
namespace {

constexpr const char* kDevice = "wire";

struct Setting {
  const char* name;
  const char* value;
};
// Under /proc/sys/net/ipv4. Each takes away something that would make an answer depend on time, on
// other connections or on an option this stack does not have.
constexpr Setting kSettings[] = {
    {"tcp_invalid_ratelimit", "0"},  // every unacceptable segment is answered
    {"tcp_challenge_ack_limit", "2147483647"},
    {"tcp_early_retrans", "0"},  // no tail loss probes
    {"tcp_autocorking", "0"},
    {"tcp_tso_win_divisor", "255"},      // no waiting for more to send at once
    {"tcp_congestion_control", "reno"},  // others pace what they send
    {"tcp_ecn", "0"},
    {"tcp_sack", "0"},
    {"tcp_timestamps", "0"},
    {"tcp_syncookies", "0"},
    {"tcp_fastopen", "0"},
    {"tcp_max_syn_backlog", "65536"},
    {"tcp_max_tw_buckets", "1048576"},
    {"tcp_min_snd_mss", "88"},  // what this stack takes for the smallest
    {"tcp_no_metrics_save", "1"},
    {"tcp_wmem", "4096 1048576 1048576"},
    {"tcp_rmem", "4096 1048576 1048576"},
};

// A file under /proc takes one write or says why not.
Status put(const std::string& path, std::string_view text) {
  ASSIGN(const Fd file, open_file(path, O_WRONLY));
  if (::write(file.get(), text.data(), text.size()) < 0) {
    return fail_errno(errno, fmt::format("write {}", path));
  }
  return {};
}

Status enter_namespaces() {
  const unsigned uid = ::geteuid(), gid = ::getegid();
  const int own_users = uid == 0 ? 0 : CLONE_NEWUSER;
  if (::unshare(CLONE_NEWNET | own_users) < 0) {
    return fail(Code::kUnavailable, "this user may not make namespaces: {}", std::strerror(errno));
  }
  if (own_users == 0) return {};
  TRY(put("/proc/self/setgroups", "deny"));
  TRY(put("/proc/self/uid_map", fmt::format("0 {} 1", uid)));
  return put("/proc/self/gid_map", fmt::format("0 {} 1", gid));
}

Result<Fd> open_device() {
  Fd tun(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tun) {
    return fail(Code::kUnavailable, "/dev/net/tun is not open to this user: {}",
                std::strerror(errno));
  }
  ifreq request{};
  std::strcpy(request.ifr_name, kDevice);
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (::ioctl(tun.get(), TUNSETIFF, &request) < 0) {
    return fail(Code::kUnavailable, "no TUN device: {}", std::strerror(errno));
  }
  return tun;
}

Status ip(std::vector<std::string> words) {
  words.insert(words.begin(), find_in_path("ip").value_or("/usr/sbin/ip"));
  ASSIGN(const Output output, run_program(words));
  if (output.exit_code != 0) {
    return fail(Code::kIo, "{}: {}", fmt::join(words, " "), output.err);
  }
  return {};
}

Status configure() {
  TRY(ip({"link", "set", "lo", "up"}));
  TRY(ip({"address", "add", kServerIp.text() + "/32", "dev", kDevice}));
  TRY(ip({"link", "set", kDevice, "mtu", std::to_string(kMtu), "txqueuelen", "30000", "up"}));
  // No resending and no probing while a script runs; no waiting for a congestion window, which this
  // stack does not have; acknowledgments at once; and a window that is told as it is: the kernel
  // keeps more for itself where a field of 16 bits cannot say it.
  TRY(ip({"route", "add", "10.0.0.0/8", "dev", kDevice, "rto_min", "60s", "initcwnd", "1000",
          "quickack", "1", "window", "60000"}));
  for (const Setting& setting : kSettings) {
    const std::string path = fmt::format("/proc/sys/net/ipv4/{}", setting.name);
    // A kernel that has no such setting has no such behaviour that we know of.
    if (::access(path.c_str(), F_OK) == 0) TRY(put(path, setting.value));
  }
  return {};
}

void set_option(int socket, int level, int option, int value) {
  SANDBOX_CHECK(::setsockopt(socket, level, option, &value, sizeof value) == 0);
}

Result<Fd> listen_on(Server server) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket.get(), SOL_SOCKET, SO_OOBINLINE,
             1);  // urgent data is plain data
  // Of one size each: no tuning, and no shrinking when the host is short of memory.
  set_option(socket.get(), SOL_SOCKET, SO_SNDBUF, 200'000);
  // The larger makes a window that a field of 16 bits can just say.
  set_option(socket.get(), SOL_SOCKET, SO_RCVBUF, server == Server::kHolds ? 32768 : 50000);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(kServerIp.value);
  address.sin_port = htons(kServerPorts[static_cast<size_t>(server)]);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0 ||
      ::listen(socket.get(), 65535) < 0) {
    return fail_errno(errno, "listen");
  }
  return socket;
}

// An abortive close leaves nothing behind.
void abort_socket(Fd& socket) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  SANDBOX_CHECK(::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
  socket.reset();
}

Stage stage_of(int socket) {
  uint8_t state = 0;  // the first field of tcp_info
  socklen_t size = sizeof state;
  SANDBOX_CHECK(::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &state, &size) == 0);
  switch (state) {
    case TCP_ESTABLISHED:
      return Stage::kEstablished;
    case TCP_FIN_WAIT1:
      return Stage::kFinWait1;
    case TCP_FIN_WAIT2:
      return Stage::kFinWait2;
    case TCP_CLOSE_WAIT:
      return Stage::kCloseWait;
    case TCP_CLOSING:
      return Stage::kClosing;
    case TCP_LAST_ACK:
      return Stage::kLastAck;
    default:
      return Stage::kNone;
  }
}

}  // namespace

Result<Fd> enter_namespace() {
  TRY(enter_namespaces());
  ASSIGN(Fd tun, open_device());
  TRY(configure());
  return tun;
}

Result<std::unique_ptr<KernelSubject>> KernelSubject::start(Fd tun, Listener listener) {
  std::unique_ptr<KernelSubject> subject(new KernelSubject(std::move(tun), std::move(listener)));
  subject->buffer_.resize(65536);
  for (const Server server : {Server::kReads, Server::kHolds}) {
    ASSIGN(Fd socket, listen_on(server));
    subject->listening_.emplace_back(std::move(socket), server);
  }
  return subject;
}

void KernelSubject::begin(Ipv4, size_t count) {
  hosts_.clear();
  hosts_.resize(count);
}

void KernelSubject::send(ByteView packet) {
  const ssize_t sent = ::write(tun_.get(), packet.data(), packet.size());
  SANDBOX_CHECK(sent == static_cast<ssize_t>(packet.size()));
}

void KernelSubject::act(size_t connection, const Step& step) {
  Host& host = hosts_[connection];
  if (!host.socket) return;
  switch (step.kind) {
    case Step::Kind::kWrite: {
      Bytes bytes(step.count);
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = host_byte(host.written + i);
      const ssize_t n = ::send(host.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) host.written += static_cast<uint64_t>(n);
      return;
    }
    case Step::Kind::kRead:
      return read_all(host);
    case Step::Kind::kClose:
      (void)::shutdown(host.socket.get(),
                       SHUT_WR);  // fails where the connection has ended
      return;
    case Step::Kind::kAbort:
      return abort_socket(host.socket);
    default:
      return;
  }
}

void KernelSubject::settle() {
  take_connections();
  for (Host& host : hosts_) {
    if (host.socket && host.server == Server::kReads) read_all(host);
  }
  hear();
}

void KernelSubject::rest() {
  for (Host& host : hosts_) {
    if (host.socket) set_option(host.socket.get(), IPPROTO_TCP, TCP_QUICKACK, 1);
  }
  hear();
}

HostView KernelSubject::look(size_t connection) {
  Host& host = hosts_[connection];
  HostView view;
  if (host.socket) view.stage = stage_of(host.socket.get());
  view.connection = host.connection;
  view.received = std::exchange(host.received, {});
  return view;
}

void KernelSubject::end() {
  take_connections();
  for (Host& host : hosts_) {
    if (host.socket) abort_socket(host.socket);
  }
  while (::read(tun_.get(), buffer_.data(), buffer_.size()) > 0) {
  }
}

void KernelSubject::take_connections() {
  for (const auto& [listening, server] : listening_) {
    for (;;) {
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      Fd socket(::accept4(listening.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) break;
      take_connection(std::move(socket), server, ntohs(peer.sin_port));
    }
  }
}

// A tuple may be used again within a script; the former socket has ended then.
void KernelSubject::take_connection(Fd socket, Server server, uint16_t guest_port) {
  const size_t connection = static_cast<size_t>(guest_port - kFirstPort);
  SANDBOX_CHECK(connection < hosts_.size());
  Host& host = hosts_[connection];
  if (host.socket) abort_socket(host.socket);
  host.socket = std::move(socket);
  host.server = server;
  host.written = 0;
  host.received.clear();
  ++host.connection;
}

void KernelSubject::read_all(Host& host) {
  for (;;) {
    const ssize_t n = ::recv(host.socket.get(), buffer_.data(), buffer_.size(), 0);
    if (n <= 0) return;
    host.received.insert(host.received.end(), buffer_.begin(), buffer_.begin() + n);
  }
}

void KernelSubject::hear() {
  for (;;) {
    const ssize_t n = ::read(tun_.get(), buffer_.data(), buffer_.size());
    if (n <= 0) return;
    listener_({buffer_.data(), static_cast<size_t>(n)});
  }
}

}  // namespace sandbox::tcp::differential
