#pragma once
// The supervisor's end of the channel to sentry, and the exec streams that pass through it.
//
// A client (the command line) numbers its streams as it likes; here each gets a fresh number of the
// sandbox, and every frame is forwarded with the number exchanged once StreamMonitor agreed. A
// violation on the guest's side is an error of the whole sandbox; on the client's side it ends that
// client. What one stream can make us hold is bounded by its credit windows.

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/event_loop.h"
#include "base/fd.h"
#include "channel/messages.h"
#include "channel/protocol.h"
#include "channel/stream.h"

namespace sandbox {

// A framed, non-blocking socket on an event loop.
class FramedSocket {
 public:
  FramedSocket(EventLoop& loop, Fd fd) : loop_(loop), fd_(std::move(fd)) {}
  ~FramedSocket();
  FramedSocket(const FramedSocket&) = delete;
  FramedSocket& operator=(const FramedSocket&) = delete;

  using OnFrame = std::function<Status(const channel::Frame&)>;
  using OnEnd = std::function<void(std::optional<Error>)>;  // nullopt: the peer closed
  Status watch(OnFrame on_frame, OnEnd on_end);
  void send(const channel::Frame& frame);
  void flush();

 private:
  void ready(uint32_t events);
  void read_some();
  void end(std::optional<Error> why);

  EventLoop& loop_;
  Fd fd_;
  channel::FrameDecoder decoder_;
  channel::SendQueue queue_;
  OnFrame on_frame_;
  OnEnd on_end_;
  bool ended_ = false;
};

class GuestLink {
 public:
  struct Events {
    std::function<void(const channel::Ready&)> ready;
    std::function<void(Error)> failed;  // the sandbox cannot go on
    std::function<void()> client_gone;
  };

  GuestLink(EventLoop& loop, Fd guest, Fd client, Events events);
  Status start();

  // The first orders. Call before the guest runs: they wait in the port.
  void resume(const channel::ResumeRequest& request);
  void set_clock();
  // To the client, outside any stream: why the sandbox failed.
  void report(const Error& error);
  void flush();

 private:
  struct Stream {
    uint32_t client_number;
    channel::StreamMonitor monitor;
  };
  Status from_guest(const channel::Frame& frame);
  Status from_guest_control(const channel::Frame& frame);
  Status from_client(const channel::Frame& frame);
  void client_ended();

  FramedSocket guest_;
  FramedSocket client_;
  Events events_;
  uint64_t nonce_ = 0;
  bool ready_ = false;
  bool client_open_ = true;
  uint32_t next_stream_ = 1;
  std::map<uint32_t, Stream> streams_;             // by the sandbox's number
  std::map<uint32_t, uint32_t> number_of_client_;  // the client's number → ours
};

}  // namespace sandbox
