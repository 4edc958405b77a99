// wire_pump: carries frames between a TAP device and a gateway's stream wire, as a virtual
// machine's monitor would, and damages the traffic on request, since the kernels that tests run on
// often lack netem.
//
//   wire_pump TAP_FD STREAM_FD [--loss PERCENT] [--duplicate PERCENT] [--reorder PERCENT] [--short]
//   [--seed N]
//
// Each frame, either way, is dropped, sent twice, or held back until the next one has passed (or 2
// ms have), with the given probabilities. --short writes the stream in pieces of 1 to 700 bytes.
// Ends when the stream is closed.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <random>
#include <string_view>

#include "base/bytes.h"
#include "base/fd.h"

namespace {

using sandbox::Bytes;
using sandbox::ByteView;

constexpr size_t kMaxQueued = 512;  // frames per direction; then its source is not read
constexpr size_t kMaxFrame = 65550;

struct Options {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;
  bool short_writes = false;
  uint32_t seed = 1;
};

class Damage {
 public:
  explicit Damage(const Options& options) : options_(options), random_(options.seed) {}
  bool loses() { return chance(options_.loss); }
  bool duplicates() { return chance(options_.duplicate); }
  bool reorders() { return chance(options_.reorder); }
  size_t piece(size_t whole) {
    if (!options_.short_writes) return whole;
    return std::min<size_t>(whole, 1 + random_() % 700);
  }

 private:
  bool chance(double percent) {
    return percent > 0 && std::uniform_real_distribution<>(0, 100)(random_) < percent;
  }
  Options options_;
  std::mt19937 random_;
};

// One direction: frames in, a queue of frames out.
class Direction {
 public:
  explicit Direction(Damage& damage) : damage_(damage) {}

  void offer(Bytes frame) {
    if (damage_.loses()) return;
    if (!held_ && damage_.reorders()) {
      held_ = std::move(frame);
      return;
    }
    if (damage_.duplicates()) queue_.push_back(frame);
    queue_.push_back(std::move(frame));
    release();
  }
  void release() {
    if (held_) queue_.push_back(std::move(*held_));
    held_.reset();
  }
  [[nodiscard]] bool holding() const { return held_.has_value(); }
  [[nodiscard]] bool full() const { return queue_.size() >= kMaxQueued; }
  std::deque<Bytes>& queue() { return queue_; }

 private:
  Damage& damage_;
  std::optional<Bytes> held_;
  std::deque<Bytes> queue_;
};

class Pump {
 public:
  Pump(int tap, int stream, const Options& options)
      : tap_(tap), stream_(stream), damage_(options), to_stream_(damage_), to_tap_(damage_) {}

  int run() {
    while (step()) {
    }
    return 0;
  }

 private:
  bool step() {
    std::array<pollfd, 2> fds{};
    fds[0] = {tap_, static_cast<short>(wants(!to_stream_.full(), !to_tap_.queue().empty())), 0};
    const bool writing = !to_stream_.queue().empty() || !partial_.empty();
    fds[1] = {stream_, static_cast<short>(wants(!to_tap_.full(), writing)), 0};
    const bool holding = to_stream_.holding() || to_tap_.holding();
    const int ready = ::poll(fds.data(), fds.size(), holding ? 2 : -1);
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0) {
      to_stream_.release();
      to_tap_.release();
    }
    if ((fds[0].revents & POLLIN) != 0) read_tap();
    if ((fds[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !read_stream()) return false;
    write_tap();
    return write_stream();
  }

  static int wants(bool in, bool out) { return (in ? POLLIN : 0) | (out ? POLLOUT : 0); }

  void read_tap() {
    for (int i = 0; i < 64 && !to_stream_.full(); ++i) {
      const ssize_t got = ::read(tap_, buffer_.data(), buffer_.size());
      if (got <= 0) return;
      to_stream_.offer(Bytes(buffer_.begin(), buffer_.begin() + got));
    }
  }

  bool read_stream() {
    const ssize_t got = ::read(stream_, buffer_.data(), buffer_.size());
    if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
    if (got > 0) input_.insert(input_.end(), buffer_.begin(), buffer_.begin() + got);
    size_t at = 0;
    while (input_.size() - at >= 4) {
      sandbox::ByteReader prefix(ByteView(input_).subspan(at, 4));
      const size_t size = prefix.be32();
      if (size > kMaxFrame) return false;
      if (input_.size() - at - 4 < size) break;
      const auto begin = input_.begin() + static_cast<std::ptrdiff_t>(at + 4);
      to_tap_.offer(Bytes(begin, begin + static_cast<std::ptrdiff_t>(size)));
      at += 4 + size;
    }
    input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }

  void write_tap() {
    while (!to_tap_.queue().empty()) {
      const Bytes& frame = to_tap_.queue().front();
      if (::write(tap_, frame.data(), frame.size()) < 0 && errno == EAGAIN) return;
      to_tap_.queue().pop_front();
    }
  }

  bool write_stream() {
    for (;;) {
      if (partial_.empty()) {
        if (to_stream_.queue().empty()) return true;
        const Bytes& frame = to_stream_.queue().front();
        sandbox::ByteWriter out;
        out.be32(static_cast<uint32_t>(frame.size()));
        out.bytes(frame);
        partial_ = out.take();
        written_ = 0;
        to_stream_.queue().pop_front();
      }
      const size_t size = damage_.piece(partial_.size() - written_);
      const ssize_t put = ::write(stream_, partial_.data() + written_, size);
      if (put < 0) return errno == EAGAIN || errno == EINTR;
      written_ += static_cast<size_t>(put);
      if (written_ == partial_.size()) partial_.clear();
    }
  }

  int tap_;
  int stream_;
  Damage damage_;
  Direction to_stream_;
  Direction to_tap_;
  std::array<uint8_t, 256 * 1024> buffer_{};
  Bytes input_;
  Bytes partial_;
  size_t written_ = 0;
};

bool parse(int argc, char** argv, Options& out) {
  for (int i = 3; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--short") {
      out.short_writes = true;
      continue;
    }
    if (++i == argc) return false;
    const double value = std::atof(argv[i]);
    if (name == "--loss")
      out.loss = value;
    else if (name == "--duplicate")
      out.duplicate = value;
    else if (name == "--reorder")
      out.reorder = value;
    else if (name == "--seed")
      out.seed = static_cast<uint32_t>(value);
    else
      return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 3 || !parse(argc, argv, options)) {
    std::fputs("usage: wire_pump TAP_FD STREAM_FD [options]\n", stderr);
    return 2;
  }
  const int tap = std::atoi(argv[1]);
  const int stream = std::atoi(argv[2]);
  if (!sandbox::set_nonblocking(tap, true) || !sandbox::set_nonblocking(stream, true)) return 1;
  static Pump pump(tap, stream, options);  // its buffer is large
  return pump.run();
}
