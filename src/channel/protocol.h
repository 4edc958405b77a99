#pragma once
// The channel: what host and sentry say to each other over the port `sandbox.ctl.0`, and what the
// command line and the supervisor say over the sandbox's unix socket (the exec part only).
//
// Shape. A byte stream of frames: a header of 12 bytes, little-endian, and a payload.
//
//   u32 length   of the payload, at most kMaxPayload
//   u32 stream   0 is the sandbox itself, any other one command ("exec stream");
//                the host chooses them in growing order
//   u8  type
//   u8  flags    used by kData and kCredit, zero elsewhere
//   u16 zero
//
// Life of the channel (stream 0), g: from the guest, h: from the host
//   g kHello      after boot; here the boot state is saved
//   h kResume     what makes this clone itself: entropy first, then clock, names, disk, mounts
//   g kReady      or kError, which is final: the sandbox cannot be used
//   h kClock      every 30 s, and after each stop of the machine
//     kPing       from either side, answered by kPong with the same payload of at most 64 bytes
//   h kShutdown   sentry ends the workload, writes everything back and powers off
//
// Life of an exec stream
//   h kExec       opens the stream
//   g kStarted    execve succeeded; absent when the program could not be started
//   h kData(stdin) kSignal kResize kCredit(stdout, stderr)
//   g kData(stdout, stderr) kCredit(stdin)
//   h kReset      nobody listens any more: the command's process tree is killed
//   g kExit       the last frame of every stream, after all output, after kReset as well
//
// The host may have frames for the stream on their way when kExit passes them; the guest ignores
// frames for streams that ended. In the other direction nothing follows kExit: it is a violation.
//
// Credit. Each of stdin, stdout and stderr of each stream has a window of kWindow bytes: a sender
// may have that many bytes of kData on their way that the receiver has not yet given back with
// kCredit. A frame with the EOF flag may be empty and costs only its bytes. Credit is end to end:
// the supervisor forwards it and grants none of its own, so what it may have to hold for one stream
// is bounded by the windows (StreamMonitor enforces that). A reader that stops therefore stops the
// program in the guest, and loses nothing.
//
// Trust. Each side treats the other as hostile: a decoder that saw one violation stays failed, and
// the host then ends the sandbox. Payloads of control frames are the CBOR subset of cbor.h; both
// ends come from one build and kHello carries the version, so an unknown key is an error and not an
// extension.

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace sandbox::channel {

constexpr uint32_t kProtocolVersion = 1;
constexpr size_t kHeaderSize = 12;
constexpr uint32_t kMaxPayload = 1U << 20;
constexpr uint32_t kWindow = 256U << 10;  // bytes in flight per stream and direction of data
// Senders cut kData here: it is what one write to a port takes, and it keeps streams fair.
constexpr uint32_t kDataChunk = 32U << 10;
constexpr size_t kMaxPing = 64;

enum class FrameType : uint8_t {
  kHello = 1,
  kResume = 2,
  kReady = 3,
  kError = 4,
  kClock = 5,
  kPing = 6,
  kPong = 7,
  kShutdown = 8,
  kExec = 16,
  kStarted = 17,
  kData = 18,    // flags: Pipe, kEof
  kCredit = 19,  // flags: Pipe; payload u32 LE, 1..kWindow
  kSignal = 20,  // payload u8, 1..64
  kResize = 21,  // payload u16 rows, u16 columns, LE
  kExit = 22,
  kReset = 23,  // no payload
};
std::string_view name_of(FrameType type);
bool is_exec_type(FrameType type);  // belongs to streams other than 0
bool guest_may_send(FrameType type);
bool host_may_send(FrameType type);

enum class Pipe : uint8_t { kStdin = 0, kStdout = 1, kStderr = 2 };
constexpr uint8_t kEof = 0x80;

// The payload is a view: of the decoder's buffer until its next call, of the caller's bytes when
// encoding.
struct Frame {
  uint32_t stream = 0;
  FrameType type = FrameType::kPing;
  uint8_t flags = 0;
  ByteView payload = {};

  [[nodiscard]] Pipe pipe() const { return static_cast<Pipe>(flags & 0x03); }  // kData, kCredit
  [[nodiscard]] bool eof() const { return (flags & kEof) != 0; }               // kData
};

void append_frame(Bytes& out, const Frame& frame);

// Bytes in, frames out. Call feed() with what was read (keep it small, 64 KiB), then next() until
// it yields nothing. A frame that comes out has a known type, legal flags, a stream that fits its
// type, and for the fixed-size payloads (kCredit, kSignal, kResize, kReset, kPing, kPong) a legal
// payload. After an error next() repeats it for ever.
class FrameDecoder {
 public:
  void feed(ByteView bytes);
  Result<std::optional<Frame>> next();
  [[nodiscard]] size_t buffered() const { return buffer_.size() - at_; }

 private:
  tl::unexpected<Error> violation(std::string message);
  Bytes buffer_;
  size_t at_ = 0;  // start of the next frame
  std::optional<Error> failed_;
};

// Frames waiting to be written to a descriptor that takes them in pieces.
class SendQueue {
 public:
  void push(const Frame& frame);
  [[nodiscard]] ByteView pending() const { return ByteView(bytes_).subspan(at_); }
  [[nodiscard]] bool empty() const { return at_ == bytes_.size(); }
  void sent(size_t count);

 private:
  Bytes bytes_;
  size_t at_ = 0;
};

// Fixed-size payloads. The decoder has checked the sizes and ranges of those that come from a
// frame.
uint32_t read_credit(const Frame& frame);
int read_signal(const Frame& frame);
struct WindowSize {
  uint16_t rows = 24;
  uint16_t columns = 80;
};
WindowSize read_resize(const Frame& frame);

Frame data_frame(uint32_t stream, Pipe pipe, ByteView bytes, bool eof = false);
// Frames whose payload is made here own it.
class OwnedFrame {
 public:
  OwnedFrame(uint32_t stream, FrameType type, uint8_t flags, Bytes payload)
      : payload_(std::move(payload)), stream_(stream), type_(type), flags_(flags) {}
  [[nodiscard]] Frame view() const { return {stream_, type_, flags_, payload_}; }

 private:
  Bytes payload_;
  uint32_t stream_;
  FrameType type_;
  uint8_t flags_;
};
OwnedFrame credit_frame(uint32_t stream, Pipe pipe, uint32_t bytes);
OwnedFrame signal_frame(uint32_t stream, int signal);
OwnedFrame resize_frame(uint32_t stream, WindowSize size);

}  // namespace sandbox::channel
