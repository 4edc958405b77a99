#pragma once
// The supervisor's end of the gateway's control socket: requests go out one at a time, each is
// answered before the next, and whoever asked is told how it went.

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"
#include "supervisor/control_messages.h"

namespace sandbox {

class GatewayLink {
 public:
  static constexpr size_t kMaxWaiting = 256;
  using Done = std::function<void(Status)>;

  using OnEvent = std::function<void(const control::Event&)>;

  // The descriptor is borrowed: it is the helper's.
  GatewayLink(EventLoop& loop, int control) : loop_(loop), control_(control) {}
  ~GatewayLink() { loop_.remove(control_); }
  GatewayLink(const GatewayLink&) = delete;
  GatewayLink& operator=(const GatewayLink&) = delete;

  // After the gateway has said that it is ready.
  Status watch();
  // A request that was sent before, in another way, and is still to be answered. Before any other.
  void expect(Done done);
  void on_event(OnEvent call) { on_event_ = std::move(call); }
  // `message` is a JSON object of docs/processes.md. `done` is called later, or at once when it
  // could not be sent.
  void ask(std::string message, std::vector<Fd> descriptors, Done done);

 private:
  struct Waiting {
    std::string message;
    std::vector<Fd> descriptors;
    Done done;
  };
  void send_next();
  void answered(Status status);
  void on_readable();

  EventLoop& loop_;
  int control_;
  std::deque<Waiting> waiting_;  // the first is with the gateway, when `sent_`
  bool sent_ = false;
  OnEvent on_event_;
};

}  // namespace sandbox
