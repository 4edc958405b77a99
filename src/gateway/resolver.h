#pragma once
// The upstream side of DNS: c-ares on our event loop. The only I/O of the names gate.
//
// Theory of operation. A query is a fresh message with a random id from a fresh port; the same
// question with the same flags asked again while it is outstanding waits for the first one's
// answer. UDP first, TCP when the answer was truncated. Two tries per server, the next server after
// a timeout, SERVFAIL or REFUSED. Answers come back as raw bytes: dns::parse_answer judges them.
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
  struct Impl;
  using Key = std::string;
  explicit Resolver(EventLoop& loop);

  EventLoop& loop_;
  ares_channeldata* channel_ = nullptr;
  std::map<Key, std::shared_ptr<Pending>> pending_;
  std::shared_ptr<bool> alive_;
  EventLoop::TimerId timer_ = 0;
  bool has_servers_ = false;
  bool processing_ = false;
};

}  // namespace sandbox::gateway
