#pragma once
// Credit and the life of one exec stream. Three users: the command line (ExecClient), the
// supervisor in the middle (StreamMonitor), and sentry (the two windows). Nothing here does I/O.
//
// The supervisor, for each client connection: it decodes the client's frames, all of which carry
// the client's own stream number (one kExec per connection, or several), gives each kExec a fresh
// number of the sandbox, and forwards every frame with the number exchanged, in both directions,
// after StreamMonitor agreed. A client that disappears: forward kReset and keep the entry, dropping
// what comes, until kExit. A monitor's error on the guest's side ends the sandbox, on the client's
// side the connection.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "channel/messages.h"
#include "channel/protocol.h"

namespace sandbox::channel {

// The sender's side of one window.
class SendWindow {
 public:
  [[nodiscard]] uint32_t available() const { return available_; }
  [[nodiscard]] bool take(size_t bytes);     // false: more than available, nothing taken
  [[nodiscard]] bool grant(uint32_t bytes);  // false: more than was outstanding, a violation

 private:
  uint32_t available_ = kWindow;
};

// The receiver's side of one window. Grants are collected until a quarter of the window is due, so
// that small reads do not cost a frame each.
class ReceiveWindow {
 public:
  [[nodiscard]] bool received(size_t bytes);  // false: the sender overran its credit, a violation
  [[nodiscard]] uint32_t consumed(size_t bytes);                   // a grant to send now, or 0
  [[nodiscard]] size_t unconsumed() const { return unconsumed_; }  // received and not yet consumed

 private:
  uint32_t allowed_ = kWindow;  // what the sender may still send
  size_t unconsumed_ = 0;
  uint32_t due_ = 0;
};

// Watches one exec stream from the middle: order, direction and credit of every frame.
class StreamMonitor {
 public:
  Status from_host(const Frame& frame);  // kExec first, then the rest
  Status from_guest(const Frame& frame);
  [[nodiscard]] bool ended() const { return ended_; }  // kExit has passed
  [[nodiscard]] bool reset() const { return reset_; }
  [[nodiscard]] uint32_t available(Pipe pipe) const {
    return windows_[static_cast<size_t>(pipe)].available();
  }

 private:
  Status take_data(const Frame& frame);
  Status take_credit(const Frame& frame);

  bool opened_ = false;
  bool started_ = false;
  bool reset_ = false;
  bool ended_ = false;
  bool eof_[3] = {};
  SendWindow windows_[3];  // stdin: the host's, stdout and stderr: the guest's
};

// The end that runs a command: bytes in, bytes and events out. One object per command and
// connection.
class ExecClient {
 public:
  struct Output {
    Pipe pipe = Pipe::kStdout;
    Bytes bytes;
  };
  struct Events {
    bool started = false;
    std::vector<Output> output;
    std::optional<Exit> exit;
    std::optional<std::string>
        failure;  // the sandbox itself failed: a sentence, a line with a hint
  };

  // The request goes into pending(). An oversized request is kLimit.
  static Result<ExecClient> open(const ExecRequest& request, uint32_t stream = 1);

  Result<Events> feed(ByteView bytes);  // kProtocol errors are final

  // Output that the user's terminal or pipe has taken; gives credit back. Call it after writing,
  // not before.
  void consumed(Pipe pipe, size_t bytes);

  [[nodiscard]] size_t stdin_room() const;  // 0: stop reading stdin until feed() made room
  void send_stdin(ByteView bytes);          // at most stdin_room()
  void close_stdin();
  void resize(WindowSize size);
  void signal(int number);
  void reset();

  [[nodiscard]] ByteView pending() const { return out_.pending(); }
  void sent(size_t count) { out_.sent(count); }

 private:
  explicit ExecClient(uint32_t stream) : stream_(stream) {}
  Status take(const Frame& frame, Events& events);
  void send(const Frame& frame);

  uint32_t stream_;
  FrameDecoder in_;
  SendQueue out_;
  StreamMonitor monitor_;    // its stdin window is what we may send
  ReceiveWindow output_[3];  // by Pipe; stdin unused
  bool stdin_closed_ = false;
};

}  // namespace sandbox::channel
