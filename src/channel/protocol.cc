#include "channel/protocol.h"

namespace sandbox::channel {
namespace {

// What is the same for every frame of a type.
struct TypeRule {
  FrameType type;
  std::string_view name;
  bool exec;   // on streams other than 0
  bool guest;  // who may send it
  bool host;
  size_t least;
  size_t most;
};

constexpr TypeRule kRules[] = {
    {FrameType::kHello, "hello", false, true, false, 1, kMaxPayload},
    {FrameType::kResume, "resume", false, false, true, 1, kMaxPayload},
    {FrameType::kReady, "ready", false, true, false, 1, kMaxPayload},
    {FrameType::kError, "error", false, true, false, 1, kMaxPayload},
    {FrameType::kClock, "clock", false, false, true, 1, kMaxPayload},
    {FrameType::kPing, "ping", false, true, true, 0, kMaxPing},
    {FrameType::kPong, "pong", false, true, true, 0, kMaxPing},
    {FrameType::kShutdown, "shutdown", false, false, true, 1, kMaxPayload},
    {FrameType::kExec, "exec", true, false, true, 1, kMaxPayload},
    {FrameType::kStarted, "started", true, true, false, 0, 0},
    {FrameType::kData, "data", true, true, true, 0, kMaxPayload},
    {FrameType::kCredit, "credit", true, true, true, 4, 4},
    {FrameType::kSignal, "signal", true, false, true, 1, 1},
    {FrameType::kResize, "resize", true, false, true, 4, 4},
    {FrameType::kExit, "exit", true, true, false, 1, kMaxPayload},
    {FrameType::kReset, "reset", true, false, true, 0, 0},
};

const TypeRule* rule_for(uint8_t type) {
  for (const TypeRule& rule : kRules) {
    if (static_cast<uint8_t>(rule.type) == type) return &rule;
  }
  return nullptr;
}

const TypeRule& rule_for(FrameType type) {
  return *rule_for(static_cast<uint8_t>(type));
}

bool legal_flags(FrameType type, uint8_t flags) {
  const uint8_t allowed = type == FrameType::kData     ? uint8_t{kEof | 0x03}
                          : type == FrameType::kCredit ? uint8_t{0x03}
                                                       : uint8_t{0};
  return (flags & ~allowed) == 0 && (flags & 0x03) <= static_cast<uint8_t>(Pipe::kStderr);
}

bool legal_value(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kCredit:
      return read_credit(frame) >= 1 && read_credit(frame) <= kWindow;
    case FrameType::kSignal:
      return read_signal(frame) >= 1 && read_signal(frame) <= 64;
    default:
      return true;
  }
}

}  // namespace

std::string_view name_of(FrameType type) {
  return rule_for(type).name;
}
bool is_exec_type(FrameType type) {
  return rule_for(type).exec;
}
bool guest_may_send(FrameType type) {
  return rule_for(type).guest;
}
bool host_may_send(FrameType type) {
  return rule_for(type).host;
}

void append_frame(Bytes& out, const Frame& frame) {
  ByteWriter header;
  header.le32(static_cast<uint32_t>(frame.payload.size()));
  header.le32(frame.stream);
  header.u8(static_cast<uint8_t>(frame.type));
  header.u8(frame.flags);
  header.le16(0);
  out.insert(out.end(), header.view().begin(), header.view().end());
  out.insert(out.end(), frame.payload.begin(), frame.payload.end());
}

void FrameDecoder::feed(ByteView bytes) {
  if (failed_) return;
  // What was handed out is dropped here and not in next(), whose views must stay good.
  if (at_ != 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(at_));
    at_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

tl::unexpected<Error> FrameDecoder::violation(std::string message) {
  failed_ = Error{Code::kProtocol, "channel: " + std::move(message)};
  buffer_ = {};
  at_ = 0;
  return fail(*failed_);
}

Result<std::optional<Frame>> FrameDecoder::next() {
  if (failed_) return fail(*failed_);
  ByteReader in(ByteView(buffer_).subspan(at_));
  const uint32_t length = in.le32();
  Frame frame;
  frame.stream = in.le32();
  const uint8_t type = in.u8();
  frame.flags = in.u8();
  const uint16_t zero = in.le16();
  if (!in.ok()) return std::nullopt;

  const TypeRule* rule = rule_for(type);
  if (rule == nullptr) return violation(fmt::format("a frame of unknown type {}", type));
  frame.type = rule->type;
  if (length < rule->least || length > rule->most)
    return violation(fmt::format("a {} frame of {} bytes", rule->name, length));
  if (rule->exec != (frame.stream != 0))
    return violation(fmt::format("a {} frame on stream {}", rule->name, frame.stream));
  if (zero != 0 || !legal_flags(frame.type, frame.flags))
    return violation(fmt::format("a {} frame with flags {:#x}", rule->name, frame.flags));
  if (in.remaining() < length) return std::nullopt;

  frame.payload = in.take(length);
  if (!legal_value(frame)) return violation(fmt::format("a {} frame out of range", rule->name));
  at_ += kHeaderSize + length;
  return frame;
}

void SendQueue::push(const Frame& frame) {
  // Written bytes are dropped when that costs little: the queue is short or mostly written.
  if (at_ != 0 && at_ >= bytes_.size() / 2) {
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(at_));
    at_ = 0;
  }
  append_frame(bytes_, frame);
}

void SendQueue::sent(size_t count) {
  at_ += count;
  if (at_ < bytes_.size()) return;
  bytes_.clear();
  at_ = 0;
}

uint32_t read_credit(const Frame& frame) {
  return ByteReader(frame.payload).le32();
}
int read_signal(const Frame& frame) {
  return ByteReader(frame.payload).u8();
}

WindowSize read_resize(const Frame& frame) {
  ByteReader in(frame.payload);
  WindowSize size;
  size.rows = in.le16();
  size.columns = in.le16();
  return size;
}

Frame data_frame(uint32_t stream, Pipe pipe, ByteView bytes, bool eof) {
  const auto flags = static_cast<uint8_t>(static_cast<uint8_t>(pipe) | (eof ? kEof : 0));
  return {stream, FrameType::kData, flags, bytes};
}

OwnedFrame credit_frame(uint32_t stream, Pipe pipe, uint32_t bytes) {
  ByteWriter out;
  out.le32(bytes);
  return {stream, FrameType::kCredit, static_cast<uint8_t>(pipe), out.take()};
}

OwnedFrame signal_frame(uint32_t stream, int signal) {
  return {stream, FrameType::kSignal, 0, Bytes{static_cast<uint8_t>(signal)}};
}

OwnedFrame resize_frame(uint32_t stream, WindowSize size) {
  ByteWriter out;
  out.le16(size.rows);
  out.le16(size.columns);
  return {stream, FrameType::kResize, 0, out.take()};
}

}  // namespace sandbox::channel
