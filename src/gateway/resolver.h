#pragma once
// The upstream side of DNS: c-ares on our event loop. The only I/O of the names gate.
//
// Theory of operation. A query is a fresh message with a random id, from a port that changes
// whenever nothing is outstanding; the same question with the same flags asked again while it is
// outstanding waits for the first one's answer. UDP first, TCP when the answer was truncated. Two
// tries per server, the next server after a timeout, SERVFAIL or REFUSED. Answers come back as raw
// bytes: dns::parse_answer judges them.
//
// Everything that reads files (c-ares looks at resolv.conf, and at the environment) happens in
// create(), before the process confines itself; resolv.conf itself is not used, the servers are
// given. Afterwards these system calls are made: socket, setsockopt, fcntl, connect, sendto,
// recvfrom, read, writev, close, getrandom, epoll_ctl, clock_gettime.
//
// Limits: 512 outstanding questions, 64 waiters on each, 5 s for an answer over all tries.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/event_loop.h"
#include "base/result.h"
#include "net/dns/message.h"

struct ares_channeldata;

namespace sandbox::gateway {

class Resolver {
 public:
  static constexpr size_t kMaxOutstanding = 512;
  static constexpr size_t kMaxWaiters = 64;
  static constexpr Duration kDeadline = std::chrono::seconds(5);
  // Errors: kLimit too much outstanding, kUnavailable no server answered (or none is configured),
  // kCancelled on destruction.
  using Callback = std::function<void(Result<Bytes>)>;

  // Servers as "192.168.1.1", "127.0.0.1:5353", "fd00::1", "[fd00::1]:53". None is no error: every
  // query then fails at once.
  static Result<std::unique_ptr<Resolver>> create(EventLoop& loop,
                                                  const std::vector<std::string>& servers);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // The callback is never called from inside query().
  void query(const dns::Question& question, const dns::Flags& flags, Callback callback);
  // New queries go to the new servers; outstanding ones are asked again there. A bad list changes
  // nothing.
  Status set_servers(const std::vector<std::string>& servers);
  [[nodiscard]] size_t outstanding() const { return pending_.size(); }

 private:
  struct Pending;
  struct Ticket;
  explicit Resolver(EventLoop& loop) : loop_(loop) {}

  static void on_answer(void* ticket, int status, int timeouts, unsigned char* bytes, int length);
  static void on_socket_state(void* self, int fd, int readable, int writable);
  Status use_servers(const std::vector<std::string>& servers);
  void send(const std::shared_ptr<Pending>& pending);
  void settle(const std::shared_ptr<Pending>& pending, Result<Bytes> result);
  void process(int read_fd, int write_fd);
  void arm_timer();
  void deliver_soon();
  void deliver();

  EventLoop& loop_;
  ares_channeldata* channel_ = nullptr;
  std::map<std::string, std::shared_ptr<Pending>> pending_;  // by question and flags
  std::vector<std::shared_ptr<Pending>> settled_;            // callbacks still to be called
  size_t in_flight_ = 0;                                     // questions that c-ares still works on
  EventLoop::TimerId retry_timer_ = 0;
  EventLoop::TimerId deliver_timer_ = 0;
  bool has_servers_ = false;
};

}  // namespace sandbox::gateway
