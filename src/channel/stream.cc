#include "channel/stream.h"

#include <algorithm>
#include <cstdlib>

namespace sandbox::channel {
namespace {

tl::unexpected<Error> violation(const Frame& frame, std::string_view why) {
  return fail(Code::kProtocol, "channel: a {} frame on stream {} {}", name_of(frame.type),
              frame.stream, why);
}

size_t index(Pipe pipe) {
  return static_cast<size_t>(pipe);
}

}  // namespace

bool SendWindow::take(size_t bytes) {
  if (bytes > available_) return false;
  available_ -= static_cast<uint32_t>(bytes);
  return true;
}

bool SendWindow::grant(uint32_t bytes) {
  if (bytes > kWindow - available_) return false;
  available_ += bytes;
  return true;
}

bool ReceiveWindow::received(size_t bytes) {
  if (bytes > allowed_) return false;
  allowed_ -= static_cast<uint32_t>(bytes);
  unconsumed_ += bytes;
  return true;
}

uint32_t ReceiveWindow::consumed(size_t bytes) {
  const size_t counted = std::min(bytes, unconsumed_);
  unconsumed_ -= counted;
  due_ += static_cast<uint32_t>(counted);
  if (due_ < kWindow / 4) return 0;
  allowed_ += due_;
  return std::exchange(due_, 0);
}

Status StreamMonitor::take_data(const Frame& frame) {
  bool& eof = eof_[index(frame.pipe())];
  if (eof) return violation(frame, "after its end of file");
  if (!windows_[index(frame.pipe())].take(frame.payload.size()))
    return violation(frame, "exceeds its credit");
  eof = frame.eof();
  return {};
}

Status StreamMonitor::take_credit(const Frame& frame) {
  if (!windows_[index(frame.pipe())].grant(read_credit(frame)))
    return violation(frame, "gives back more than was sent");
  return {};
}

Status StreamMonitor::from_host(const Frame& frame) {
  if (!host_may_send(frame.type) || !is_exec_type(frame.type))
    return violation(frame, "is not the host's to send");
  if ((frame.type == FrameType::kExec) == opened_)
    return violation(frame, opened_ ? "opens it twice" : "before it was opened");
  if (reset_) return violation(frame, "after its reset");
  opened_ = true;
  switch (frame.type) {
    case FrameType::kReset:
      reset_ = true;
      return {};
    case FrameType::kData:
      if (frame.pipe() != Pipe::kStdin) return violation(frame, "for an output");
      return take_data(frame);
    case FrameType::kCredit:
      if (frame.pipe() == Pipe::kStdin) return violation(frame, "for the input");
      // The guest may have ended the stream while this was on its way; it then counts for nothing.
      return take_credit(frame);
    default:
      return {};
  }
}

Status StreamMonitor::from_guest(const Frame& frame) {
  if (!guest_may_send(frame.type) || !is_exec_type(frame.type))
    return violation(frame, "is not the guest's to send");
  if (!opened_) return violation(frame, "before it was opened");
  if (ended_) return violation(frame, "after its exit");
  switch (frame.type) {
    case FrameType::kStarted:
      if (std::exchange(started_, true)) return violation(frame, "comes twice");
      return {};
    case FrameType::kExit:
      ended_ = true;
      return {};
    case FrameType::kData:
      if (!started_) return violation(frame, "before it started");
      if (frame.pipe() == Pipe::kStdin) return violation(frame, "for the input");
      return take_data(frame);
    default:  // kCredit: nothing else passes the first test
      if (frame.pipe() != Pipe::kStdin) return violation(frame, "for an output");
      return take_credit(frame);
  }
}

Result<ExecClient> ExecClient::open(const ExecRequest& request, uint32_t stream) {
  const Bytes payload = encode(request);
  TRY(check_size(payload));
  ExecClient client(stream);
  client.send({stream, FrameType::kExec, 0, payload});
  return client;
}

// What this class sends is legal by construction, so a refusal is a broken invariant.
void ExecClient::send(const Frame& frame) {
  if (!monitor_.from_host(frame)) std::abort();
  out_.push(frame);
}

Result<ExecClient::Events> ExecClient::feed(ByteView bytes) {
  Events events;
  in_.feed(bytes);
  while (true) {
    ASSIGN(const std::optional<Frame> frame, in_.next());
    if (!frame) return events;
    TRY(take(*frame, events));
  }
}

Status ExecClient::take(const Frame& frame, Events& events) {
  if (frame.stream == 0 && frame.type == FrameType::kError) {
    ASSIGN(ErrorReport report, decode_error(frame.payload));
    events.failure = std::move(report.text);
    return {};
  }
  if (frame.stream != stream_) return violation(frame, "belongs to nobody");
  TRY(monitor_.from_guest(frame));
  switch (frame.type) {
    case FrameType::kStarted:
      events.started = true;
      return {};
    case FrameType::kData: {
      if (!output_[index(frame.pipe())].received(frame.payload.size()))
        return violation(frame, "exceeds its credit");
      if (!frame.payload.empty())
        events.output.push_back({frame.pipe(), Bytes(frame.payload.begin(), frame.payload.end())});
      return {};
    }
    case FrameType::kExit: {
      ASSIGN(events.exit, decode_exit(frame.payload));
      return {};
    }
    default:
      return {};  // kCredit, which the monitor has counted
  }
}

void ExecClient::consumed(Pipe pipe, size_t bytes) {
  const uint32_t grant = output_[index(pipe)].consumed(bytes);
  if (grant != 0 && !monitor_.ended() && !monitor_.reset())
    send(credit_frame(stream_, pipe, grant).view());
}

size_t ExecClient::stdin_room() const {
  if (stdin_closed_ || monitor_.reset() || monitor_.ended()) return 0;
  return monitor_.available(Pipe::kStdin);
}

void ExecClient::send_stdin(ByteView bytes) {
  if (bytes.size() > stdin_room()) std::abort();
  while (!bytes.empty()) {
    const ByteView chunk = bytes.first(std::min<size_t>(bytes.size(), kDataChunk));
    send(data_frame(stream_, Pipe::kStdin, chunk));
    bytes = bytes.subspan(chunk.size());
  }
}

void ExecClient::close_stdin() {
  if (std::exchange(stdin_closed_, true) || monitor_.reset() || monitor_.ended()) return;
  send(data_frame(stream_, Pipe::kStdin, {}, true));
}

void ExecClient::resize(WindowSize size) {
  if (!monitor_.reset() && !monitor_.ended()) send(resize_frame(stream_, size).view());
}

void ExecClient::signal(int number) {
  if (!monitor_.reset() && !monitor_.ended()) send(signal_frame(stream_, number).view());
}

void ExecClient::reset() {
  if (!monitor_.reset() && !monitor_.ended()) send({stream_, FrameType::kReset, 0, {}});
}

}  // namespace sandbox::channel
