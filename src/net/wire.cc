#include "net/wire.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sandbox::net {

namespace {

constexpr size_t kLengthPrefix = 4;
// One turn of the loop reads at most this much, so that host sockets and timers get theirs.
constexpr size_t kReadBudget = 512 * 1024;
constexpr size_t kTapFramesPerTurn = 64;

// Bytes of whole frames waiting for the descriptor. Two of the largest frames always fit, so a
// sender never starves, and little more, so that what TCP believes sent is never far ahead of the
// guest.
class SendBuffer {
 public:
  static constexpr size_t kCapacity = 256 * 1024;

  std::span<uint8_t> begin(size_t size) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (kCapacity - end_ < size) compact();
    if (kCapacity - end_ < size) return {};
    if (!bytes_) bytes_ = std::make_unique_for_overwrite<uint8_t[]>(kCapacity);
    begun_ = size;
    return {bytes_.get() + end_, size};
  }
  void commit() {
    end_ += begun_;
    begun_ = 0;
  }
  [[nodiscard]] ByteView pending() const { return {bytes_.get() + begin_, end_ - begin_}; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }
  void consume(size_t count) { begin_ += count; }

 private:
  void compact() {
    if (begin_ == 0) return;
    std::memmove(bytes_.get(), bytes_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }

  std::unique_ptr<uint8_t[]> bytes_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t begun_ = 0;
};

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS;
}

// The stream form. Input is one buffer of fixed size: a large read, as many whole frames as it
// holds, the rest moved to the front. A length beyond the largest frame means that the peer is out
// of step; nothing after it can be trusted.
class StreamWire final : public Wire {
 public:
  explicit StreamWire(Fd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const override { return fd_.get(); }

  Status receive(const Handler& handler) override {
    if (!input_) input_ = std::make_unique_for_overwrite<uint8_t[]>(kInput);
    for (size_t taken = 0; taken < kReadBudget;) {
      const ssize_t got = ::read(fd_.get(), input_.get() + filled_, kInput - filled_);
      if (got == 0) return fail(Code::kUnavailable, "the wire was closed");
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && would_block(errno)) return {};
      if (got < 0) return fail_errno(errno, "reading the wire");
      const auto count = static_cast<size_t>(got);
      const bool drained = count < kInput - filled_;
      taken += count;
      filled_ += count;
      TRY(deliver(handler));
      if (drained) return {};
    }
    return {};
  }

  std::span<uint8_t> begin_frame(size_t size) override {
    const std::span<uint8_t> room = out_.begin(kLengthPrefix + size);
    if (room.empty()) return {};
    const auto length = static_cast<uint32_t>(size);
    for (size_t i = 0; i < kLengthPrefix; ++i)
      room[i] = static_cast<uint8_t>(length >> (8 * (kLengthPrefix - 1 - i)));
    return room.subspan(kLengthPrefix);
  }

  void commit_frame() override { out_.commit(); }

  Status flush() override {
    while (!out_.empty()) {
      const ByteView pending = out_.pending();
      const ssize_t put = ::write(fd_.get(), pending.data(), pending.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && would_block(errno)) return {};
      if (put < 0) return fail_errno(errno, "writing the wire");
      out_.consume(static_cast<size_t>(put));
    }
    return {};
  }

  [[nodiscard]] bool blocked() const override { return !out_.empty(); }

 private:
  static constexpr size_t kInput = 128 * 1024;
  static_assert(kInput > kLengthPrefix + kMaxFrame);

  Status deliver(const Handler& handler) {
    size_t at = 0;
    while (filled_ - at >= kLengthPrefix) {
      ByteReader prefix({input_.get() + at, kLengthPrefix});
      const size_t size = prefix.be32();
      if (size > kMaxFrame)
        return fail(Code::kProtocol, "the wire announced a frame of {} bytes", size);
      if (filled_ - at - kLengthPrefix < size) break;
      handler({input_.get() + at + kLengthPrefix, size});
      at += kLengthPrefix + size;
    }
    if (at > 0) std::memmove(input_.get(), input_.get() + at, filled_ - at);
    filled_ -= at;
    return {};
  }

  Fd fd_;
  std::unique_ptr<uint8_t[]> input_;
  size_t filled_ = 0;
  SendBuffer out_;
};

// The TAP form. The kernel takes a frame whole or not at all; lengths are kept beside the bytes in
// the same buffer.
class TapWire final : public Wire {
 public:
  explicit TapWire(Fd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const override { return fd_.get(); }

  Status receive(const Handler& handler) override {
    if (!input_) input_ = std::make_unique_for_overwrite<uint8_t[]>(kMaxFrame);
    for (size_t frames = 0; frames < kTapFramesPerTurn; ++frames) {
      const ssize_t got = ::read(fd_.get(), input_.get(), kMaxFrame);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && would_block(errno)) return {};
      if (got < 0) return fail_errno(errno, "reading the TAP device");
      if (got == 0) return fail(Code::kUnavailable, "the TAP device was closed");
      handler({input_.get(), static_cast<size_t>(got)});
    }
    return {};
  }

  std::span<uint8_t> begin_frame(size_t size) override {
    const std::span<uint8_t> room = out_.begin(sizeof(uint32_t) + size);
    if (room.empty()) return {};
    const auto length = static_cast<uint32_t>(size);
    std::memcpy(room.data(), &length, sizeof length);
    return room.subspan(sizeof length);
  }

  void commit_frame() override { out_.commit(); }

  Status flush() override {
    while (!out_.empty()) {
      const ByteView pending = out_.pending();
      uint32_t length = 0;
      std::memcpy(&length, pending.data(), sizeof length);
      const ssize_t put = ::write(fd_.get(), pending.data() + sizeof length, length);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && would_block(errno)) return {};
      // EIO: the interface is down. Its frames are lost as on any unplugged cable.
      if (put < 0 && errno != EIO) return fail_errno(errno, "writing the TAP device");
      out_.consume(sizeof length + length);
    }
    return {};
  }

  [[nodiscard]] bool blocked() const override { return !out_.empty(); }

 private:
  Fd fd_;
  std::unique_ptr<uint8_t[]> input_;
  SendBuffer out_;
};

}  // namespace

Result<std::unique_ptr<Wire>> make_stream_wire(Fd fd) {
  TRY(set_nonblocking(fd.get(), true));
  return std::make_unique<StreamWire>(std::move(fd));
}

Result<std::unique_ptr<Wire>> make_tap_wire(Fd fd) {
  TRY(set_nonblocking(fd.get(), true));
  return std::make_unique<TapWire>(std::move(fd));
}

}  // namespace sandbox::net
