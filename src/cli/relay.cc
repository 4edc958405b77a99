#include "cli/relay.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <memory>

#include "base/log.h"
#include "base/text.h"
#include "channel/stream.h"
#include "cli/terminal.h"
#include "supervisor/failure_report.h"

namespace sandbox::cli {

namespace {

using channel::ExecClient;
using channel::Pipe;

constexpr size_t kPipeChunk = 4096;  // what POLLOUT promises
constexpr size_t kSocketChunk = 65536;
constexpr int kInterruptsToLeave = 3;

// Output of one pipe on its way to a descriptor of the user.
struct Sink {
  int fd;
  Pipe pipe;
  std::deque<Bytes> queue = {};
  size_t at = 0;
  bool broken = false;  // nobody reads it any more
};

class Relay {
 public:
  Relay(int connection, ExecClient client, bool tty, Asker* asker)
      : connection_(connection), client_(std::move(client)), tty_(tty), asker_(asker) {}

  Result<RelayResult> run(std::optional<Duration> at_most);

 private:
  [[nodiscard]] bool output_drained() const {
    return std::all_of(sinks_.begin(), sinks_.end(), [](const Sink& s) { return s.queue.empty(); });
  }
  [[nodiscard]] int wait_ms(Instant deadline) const;
  // Once the command has ended, what it still says goes before what it wanted.
  [[nodiscard]] bool asking() const { return asker_ != nullptr && asker_->showing() && !exit_; }
  // A terminal on which a question stands is not the command's.
  [[nodiscard]] bool is_taken(int fd) const { return asking() && ::isatty(fd) == 1; }
  void serve_asker(short control_events, short key_events);
  void repaint();
  void forward_signals();
  void read_stdin();
  void write_sink(Sink& sink);
  Status read_connection();
  Status write_connection();
  Status take_frames(ByteView bytes);

  int connection_;
  ExecClient client_;
  bool tty_;
  Asker* asker_;
  bool stdin_open_ = true;
  int interrupts_ = 0;
  SignalPipe signals_;
  std::array<Sink, 2> sinks_ = {Sink{STDOUT_FILENO, Pipe::kStdout},
                                Sink{STDERR_FILENO, Pipe::kStderr}};
  std::optional<channel::Exit> exit_;
};

int Relay::wait_ms(Instant deadline) const {
  if (deadline == Instant::never()) return -1;
  const Duration left = std::max(deadline - monotonic_now(), Duration(0));
  return static_cast<int>(std::min<int64_t>(left / 1ms + 1, 3'600'000));
}

Result<RelayResult> Relay::run(std::optional<Duration> at_most) {
  const Instant deadline = at_most ? monotonic_now() + *at_most : Instant::never();
  while (!exit_ || !output_drained()) {
    if (interrupts_ >= kInterruptsToLeave) return RelayResult{.exit = {}, .interrupted = true};
    if (monotonic_now() >= deadline) return RelayResult{.exit = {}, .timed_out = true};
    const bool want_stdin =
        stdin_open_ && !exit_ && client_.stdin_room() > 0 && !is_taken(STDIN_FILENO);
    const auto wanted = [this](const Sink& sink) {
      return sink.queue.empty() || is_taken(sink.fd) ? -1 : sink.fd;
    };
    const auto events = static_cast<short>(client_.pending().empty() ? POLLIN : POLLIN | POLLOUT);
    std::array<pollfd, 7> fds = {{{exit_ ? -1 : connection_, events, 0},
                                  {signals_.fd(), POLLIN, 0},
                                  {want_stdin ? STDIN_FILENO : -1, POLLIN, 0},
                                  {wanted(sinks_[0]), POLLOUT, 0},
                                  {wanted(sinks_[1]), POLLOUT, 0},
                                  {asker_ == nullptr ? -1 : asker_->control(), POLLIN, 0},
                                  {asking() ? asker_->terminal() : -1, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), wait_ms(deadline)) < 0 && errno != EINTR)
      return fail_errno(errno, "poll");
    if (asker_ != nullptr) serve_asker(fds[5].revents, fds[6].revents);
    if (fds[1].revents != 0) forward_signals();
    if (fds[2].revents != 0) read_stdin();
    for (size_t i = 0; i < sinks_.size(); ++i)
      if (fds[3 + i].revents != 0) write_sink(sinks_[i]);
    if (!exit_ && (fds[0].revents & POLLOUT) != 0) TRY(write_connection());
    if (!exit_ && (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) TRY(read_connection());
    if (!exit_) TRY(write_connection());
  }
  return RelayResult{.exit = *exit_};
}

void Relay::serve_asker(short control_events, short key_events) {
  if (key_events != 0 && asking()) asker_->on_key();
  if (control_events != 0) asker_->on_control();
  if (!asker_->showing() && asker_->take_painted()) repaint();
}

// What fills a terminal paints it anew when its size changes, and only then.
void Relay::repaint() {
  if (!tty_ || exit_) return;
  channel::WindowSize size = terminal_size();
  if (size.columns > 1) {
    channel::WindowSize narrower = size;
    --narrower.columns;
    client_.resize(narrower);
  }
  client_.resize(size);
}

void Relay::forward_signals() {
  while (const auto number = signals_.take()) {
    if (exit_) continue;
    if (*number == SIGWINCH) {
      if (tty_) client_.resize(terminal_size());
      continue;
    }
    if (*number == SIGINT) ++interrupts_;
    client_.signal(*number);
  }
}

void Relay::read_stdin() {
  std::array<uint8_t, kSocketChunk> buffer;
  const size_t room = std::min(buffer.size(), client_.stdin_room());
  const ssize_t n = ::read(STDIN_FILENO, buffer.data(), room);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <=
      0) {  // end of file; an unreadable stdin (EIO of a background process, EISDIR) is one too
    stdin_open_ = false;
    client_.close_stdin();
    return;
  }
  client_.send_stdin({buffer.data(), static_cast<size_t>(n)});
}

void Relay::write_sink(Sink& sink) {
  const Bytes& front = sink.queue.front();
  const size_t count = std::min(front.size() - sink.at, kPipeChunk);
  ssize_t n = ::write(sink.fd, front.data() + sink.at, count);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n < 0) {
    // The reader is gone. The program learns it the way it would have without us.
    if (!sink.broken && errno == EPIPE && !exit_) client_.signal(SIGPIPE);
    sink.broken = true;
    n = static_cast<ssize_t>(front.size() - sink.at);
  }
  client_.consumed(sink.pipe, static_cast<size_t>(n));
  sink.at += static_cast<size_t>(n);
  if (sink.at == front.size()) {
    sink.queue.pop_front();
    sink.at = 0;
  }
}

Status Relay::write_connection() {
  while (!client_.pending().empty()) {
    const ByteView pending = client_.pending();
    const ssize_t n =
        ::send(connection_, pending.data(), pending.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n < 0) return read_connection();  // the reason may still be there to read
    client_.sent(static_cast<size_t>(n));
  }
  return {};
}

Status Relay::read_connection() {
  std::array<uint8_t, kSocketChunk> buffer;
  const ssize_t n = ::recv(connection_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (n <= 0) return fail(Code::kInternal, "the sandbox's supervisor ended unexpectedly");
  return take_frames({buffer.data(), static_cast<size_t>(n)});
}

Status Relay::take_frames(ByteView bytes) {
  ASSIGN(auto events, client_.feed(bytes));
  if (events.started) log::trace("command started");
  for (auto& output : events.output) {
    if (output.bytes.empty()) continue;
    sinks_[output.pipe == Pipe::kStderr ? 1 : 0].queue.push_back(std::move(output.bytes));
  }
  if (events.failure) return fail(error_from_report(*events.failure));
  if (events.exit) exit_ = std::move(events.exit);
  return {};
}

}  // namespace

Result<RelayResult> relay_command(const Fd& connection, const channel::ExecRequest& request,
                                  std::optional<Duration> at_most, Asker* asker) {
  ASSIGN(ExecClient client, ExecClient::open(request));
  std::unique_ptr<RawTerminal> raw;
  if (request.tty && ::isatty(STDIN_FILENO) == 1) raw = std::make_unique<RawTerminal>();
  Relay relay(connection.get(), std::move(client), request.tty, asker);
  auto result = relay.run(at_most);
  if (asker != nullptr) asker->end();  // before the terminal is given back
  return result;
}

}  // namespace sandbox::cli
