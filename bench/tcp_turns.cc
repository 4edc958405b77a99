// The round trip of one byte over TCP, without an interpreter's time in it.
//
//   tcp_turns serve ADDRESS PORT         prints "ready", then answers byte for byte, one connection
//                                        after the other, until it is killed
//   tcp_turns ask ADDRESS PORT COUNT     prints the median of COUNT round trips in microseconds
//   tcp_turns visit ADDRESS PORT COUNT   the same, each on a connection of its own that is opened
//                                        and closed for it

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

[[noreturn]] void die(const char* doing) {
  std::perror(doing);
  std::exit(1);
}

sockaddr_in parse_address(const char* address, const char* port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  if (::inet_pton(AF_INET, address, &out.sin_addr) != 1) die(address);
  return out;
}

// A turn is a single byte, so it must leave at once.
void send_at_once(int socket) {
  const int on = 1;
  if (::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0) die("TCP_NODELAY");
}

int serve(const sockaddr_in& address) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) die("SO_REUSEADDR");
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    die("bind");
  if (::listen(listener, 16) < 0) die("listen");
  std::puts("ready");
  std::fflush(stdout);
  for (;;) {
    const int peer = ::accept(listener, nullptr, nullptr);
    if (peer < 0) die("accept");
    send_at_once(peer);
    char byte = 0;
    while (::read(peer, &byte, 1) == 1)
      if (::write(peer, &byte, 1) != 1) break;
    ::close(peer);
  }
}

int connect_to(const sockaddr_in& address) {
  const int peer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(peer, reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    die("connect");
  send_at_once(peer);
  return peer;
}

void turn(int peer) {
  char byte = 0;
  if (::write(peer, &byte, 1) != 1 || ::read(peer, &byte, 1) != 1) die("turn");
}

template <class Work>
int print_median(int count, Work work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    work();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + count / 2, times.end());
  std::printf("%.1f\n", times[static_cast<size_t>(count) / 2]);
  return 0;
}

int ask(const sockaddr_in& address, int count) {
  const int peer = connect_to(address);
  return print_median(count, [peer] { turn(peer); });
}

int visit(const sockaddr_in& address, int count) {
  return print_median(count, [&address] {
    const int peer = connect_to(address);
    turn(peer);
    ::close(peer);
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "serve")
    return serve(parse_address(argv[2], argv[3]));
  if (argc == 5 && std::string_view(argv[1]) == "ask" && std::atoi(argv[4]) > 0)
    return ask(parse_address(argv[2], argv[3]), std::atoi(argv[4]));
  if (argc == 5 && std::string_view(argv[1]) == "visit" && std::atoi(argv[4]) > 0)
    return visit(parse_address(argv[2], argv[3]), std::atoi(argv[4]));
  std::fputs("usage: tcp_turns serve ADDRESS PORT | (ask | visit) ADDRESS PORT COUNT\n", stderr);
  return 2;
}
