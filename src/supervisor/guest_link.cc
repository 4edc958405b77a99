#include "supervisor/guest_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "supervisor/failure_report.h"

namespace sandbox {

using channel::Frame;
using channel::FrameType;

FramedSocket::~FramedSocket() {
  if (fd_) loop_.remove(fd_.get());
}

Status FramedSocket::watch(OnFrame on_frame, OnEnd on_end) {
  on_frame_ = std::move(on_frame);
  on_end_ = std::move(on_end);
  TRY(set_nonblocking(fd_.get(), true));
  return loop_.add(fd_.get(), EventLoop::kRead, [this](uint32_t events) { ready(events); });
}

void FramedSocket::send(const Frame& frame) {
  if (ended_) return;
  queue_.push(frame);
  flush();
}

void FramedSocket::flush() {
  while (!queue_.empty() && !ended_) {
    const ByteView pending = queue_.pending();
    const ssize_t n = ::send(fd_.get(), pending.data(), pending.size(), MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return;  // the end is reported by the reading side
      break;
    }
    queue_.sent(static_cast<size_t>(n));
  }
  loop_.modify(fd_.get(), queue_.empty() ? EventLoop::kRead : EventLoop::kRead | EventLoop::kWrite);
}

void FramedSocket::ready(uint32_t events) {
  if ((events & EventLoop::kWrite) != 0) flush();
  if ((events & (EventLoop::kRead | EventLoop::kHangup)) != 0) read_some();
}

void FramedSocket::read_some() {
  std::array<uint8_t, 65536> buffer;
  const ssize_t n = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return end(std::nullopt);
  decoder_.feed({buffer.data(), static_cast<size_t>(n)});
  while (!ended_) {
    auto next = decoder_.next();
    if (!next) return end(std::move(next.error()));
    if (!*next) return;
    Status status = on_frame_(**next);
    if (!status) return end(std::move(status.error()));
  }
}

void FramedSocket::end(std::optional<Error> why) {
  if (ended_) return;
  ended_ = true;
  loop_.remove(fd_.get());
  on_end_(std::move(why));
}

GuestLink::GuestLink(EventLoop& loop, Fd guest, Fd client, Events events)
    : guest_(loop, std::move(guest)),
      client_(loop, std::move(client)),
      events_(std::move(events)) {}

Status GuestLink::start() {
  TRY(guest_.watch([this](const Frame& frame) { return from_guest(frame); },
                   [this](std::optional<Error> why) {
                     events_.failed(
                         why ? std::move(*why).while_doing("the guest broke the channel's protocol")
                             : Error{Code::kProtocol, "the guest closed its channel"});
                   }));
  return client_.watch([this](const Frame& frame) { return from_client(frame); },
                       [this](const std::optional<Error>&) { client_ended(); });
}

void GuestLink::resume(const channel::ResumeRequest& request) {
  nonce_ = request.nonce;
  guest_.send({0, FrameType::kResume, 0, channel::encode(request)});
}

void GuestLink::set_clock() {
  if (!ready_) return;
  guest_.send({0, FrameType::kClock, 0,
               channel::encode(channel::Clock{static_cast<uint64_t>(wall_now_ns())})});
}

void GuestLink::report(const Error& error) {
  client_.send(
      {0, FrameType::kError, 0, channel::encode(channel::ErrorReport{failure_report(error)})});
}

void GuestLink::flush() {
  guest_.flush();
  client_.flush();
}

Status GuestLink::from_guest_control(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kReady: {
      ASSIGN(const channel::Ready ready, channel::decode_ready(frame.payload));
      if (ready.nonce != nonce_ || ready_) return fail(Code::kProtocol, "an answer to no question");
      ready_ = true;
      events_.ready(ready);
      return {};
    }
    case FrameType::kError: {
      ASSIGN(const channel::ErrorReport report, channel::decode_error(frame.payload));
      events_.failed(
          Error{Code::kUnavailable, fmt::format("the guest could not be set up: {}", report.text)});
      return {};
    }
    case FrameType::kPong:
      return {};
    default:
      return fail(Code::kProtocol, "unexpected {}", channel::name_of(frame.type));
  }
}

Status GuestLink::from_guest(const Frame& frame) {
  if (!channel::guest_may_send(frame.type))
    return fail(Code::kProtocol, "{} comes from hosts only", channel::name_of(frame.type));
  if (frame.stream == 0) return from_guest_control(frame);
  const auto it = streams_.find(frame.stream);
  if (it == streams_.end() || !ready_)
    return fail(Code::kProtocol, "a frame for stream {}, which is not open", frame.stream);
  TRY(it->second.monitor.from_guest(frame));
  if (client_open_)
    client_.send({it->second.client_number, frame.type, frame.flags, frame.payload});
  if (it->second.monitor.ended()) {
    number_of_client_.erase(it->second.client_number);
    streams_.erase(it);
  }
  return {};
}

Status GuestLink::from_client(const Frame& frame) {
  if (frame.stream == 0 || !channel::host_may_send(frame.type))
    return fail(Code::kProtocol, "a client may not send {}", channel::name_of(frame.type));
  auto number = number_of_client_.find(frame.stream);
  if (frame.type == FrameType::kExec) {
    if (number != number_of_client_.end())
      return fail(Code::kProtocol, "stream {} is open already", frame.stream);
    streams_.emplace(next_stream_, Stream{frame.stream, {}});
    number = number_of_client_.emplace(frame.stream, next_stream_++).first;
  }
  if (number == number_of_client_.end()) return {};  // it ended while the frame was on its way
  TRY(streams_.at(number->second).monitor.from_host(frame));
  guest_.send({number->second, frame.type, frame.flags, frame.payload});
  return {};
}

void GuestLink::client_ended() {
  client_open_ = false;
  for (auto& [number, stream] : streams_) {
    const Frame reset{number, FrameType::kReset, 0, {}};
    if (!stream.monitor.ended() && stream.monitor.from_host(reset)) guest_.send(reset);
  }
  events_.client_gone();
}

}  // namespace sandbox
