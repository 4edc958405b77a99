#include "supervisor/gateway_link.h"

#include "base/socket.h"

namespace sandbox {

namespace {
constexpr size_t kMaxMessage = 64 * 1024;
}

Status GatewayLink::watch() {
  TRY(set_nonblocking(control_, true));
  return loop_.add(control_, EventLoop::kRead, [this](uint32_t) { on_readable(); });
}

void GatewayLink::ask(std::string message, std::vector<Fd> descriptors, Done done) {
  if (waiting_.size() >= kMaxWaiting)
    return done(fail(Code::kLimit, "too many changes are waiting for the network process"));
  waiting_.push_back({std::move(message), std::move(descriptors), std::move(done)});
  if (!sent_) send_next();
}

void GatewayLink::expect(Done done) {
  waiting_.push_front({{}, {}, std::move(done)});
  sent_ = true;
}

void GatewayLink::send_next() {
  while (!sent_ && !waiting_.empty()) {
    Waiting& next = waiting_.front();
    std::vector<int> numbers;
    for (const Fd& fd : next.descriptors) numbers.push_back(fd.get());
    Status status = send_with_fds(control_, next.message, numbers);
    next.descriptors.clear();
    sent_ = true;
    if (!status) answered(std::move(status));
  }
}

void GatewayLink::answered(Status status) {
  if (!sent_) return;  // nobody asked: what it says at its end is on stderr as well
  const Done done = std::move(waiting_.front().done);
  waiting_.pop_front();
  sent_ = false;
  done(std::move(status));
}

void GatewayLink::on_readable() {
  auto received = receive_with_fds(control_, kMaxMessage);
  if (!received) return;  // a reset is followed by the end of file
  if (received->bytes.empty()) {
    loop_.remove(control_);  // it has ended; its end is noticed by its process
    return;
  }
  const auto event = control::parse_event(received->bytes);
  if (event && *event) {
    if (on_event_) on_event_(**event);
    return;
  }
  const auto reply = control::parse_reply(received->bytes);
  answered(reply ? Status{} : Status(fail(reply.error())));
  send_next();
}

}  // namespace sandbox
