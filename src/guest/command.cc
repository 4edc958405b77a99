#include "guest/command.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/log.h"
#include "guest/exit_status.h"

namespace sandbox::guest {
namespace {

using channel::Exit;
using channel::Frame;
using channel::FrameType;
using channel::Pipe;

constexpr size_t kMaxEarlySignals = 16;
constexpr uint8_t kEndOfTransmission = 4;  // VEOF of a fresh terminal, Ctrl-D
constexpr int kPipeSize = 256 << 10;

Exit start_failure(const Error& error) {
  return {126, 0, error.message};
}

struct PipeEnds {
  Fd read;
  Fd write;
};

// Programs reopen /dev/stdout by name, so the pipe belongs to who will run.
Result<PipeEnds> make_pipe(uint32_t owner) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  PipeEnds pipe{Fd(ends[0]), Fd(ends[1])};
  (void)::fcntl(pipe.read.get(), F_SETPIPE_SZ, kPipeSize);  // speed only
  if (::fchown(pipe.read.get(), owner, static_cast<gid_t>(-1)) != 0)
    return fail_errno(errno, "give a pipe to the command");
  return pipe;
}

}  // namespace

Command::Command(uint32_t stream, CommandContext context)
    : stream_(stream), context_(std::move(context)) {
  if (!monitor_.from_host({stream_, FrameType::kExec, 0, {}})) std::abort();
}

Command::~Command() {
  release();
}

// What this class sends is legal by construction, so a refusal is a broken invariant.
void Command::send(const Frame& frame) {
  if (!monitor_.from_guest(frame)) std::abort();
  context_.send(frame);
}

void Command::release() {
  for (Output& output : outputs_) close_output(output);
  close_stdin();
  if (reports_) context_.loop.remove(reports_.get());
  reports_.reset();
  if (quiet_timer_ != 0) context_.loop.cancel(std::exchange(quiet_timer_, 0));
  if (terminal_timer_ != 0) context_.loop.cancel(std::exchange(terminal_timer_, 0));
}

// ---- Starting
// ------------------------------------------------------------------------------------------------------------

void Command::start(const channel::ExecRequest& request, Identity identity) {
  if (const Status begun = begin(request, std::move(identity)); !begun)
    finish(start_failure(begun.error()));
}

Status Command::begin(const channel::ExecRequest& request, Identity identity) {
  detached_ = request.detached;
  launch_.argv = request.argv;
  launch_.env = complete_environment(request.env, identity, request.tty);
  launch_.candidates =
      program_candidates(request.argv.front(), environment_value(launch_.env, "PATH"));
  launch_.cwd = request.cwd;
  launch_.tty = request.tty && !request.detached;
  launch_.identity = std::move(identity);
  if (request.detached)
    TRY(open_null());
  else if (request.tty)
    TRY(open_terminal(request.size));
  else
    TRY(open_pipes(launch_.identity));

  ASSIGN(group_, CommandGroup::create(stream_));
  for (size_t i = 0; i < 3; ++i)
    launch_.stdio[i] = child_ends_[launch_.tty || detached_ ? 0 : i].get();
  ASSIGN(Launched launched, context_.workload.launch(launch_, *group_));
  entrant_ = launched.entrant;
  reports_ = std::move(launched.reports);
  for (Fd& end : child_ends_) end.reset();
  return context_.loop.add(reports_.get(), EventLoop::kRead, [this](uint32_t) { read_reports(); });
}

Status Command::open_null() {
  ASSIGN(child_ends_[0], open_file("/dev/null", O_RDWR));
  return {};
}

Status Command::open_pipes(const Identity& identity) {
  ASSIGN(PipeEnds in, make_pipe(identity.uid));
  ASSIGN(PipeEnds out, make_pipe(identity.uid));
  ASSIGN(PipeEnds err, make_pipe(identity.uid));
  for (const int fd : {in.write.get(), out.read.get(), err.read.get()})
    TRY(set_nonblocking(fd, true));
  child_ends_[0] = std::move(in.read);
  child_ends_[1] = std::move(out.write);
  child_ends_[2] = std::move(err.write);
  stdin_ = std::move(in.write);
  outputs_.push_back({Pipe::kStdout, std::move(out.read)});
  outputs_.push_back({Pipe::kStderr, std::move(err.read)});
  return {};
}

Status Command::open_terminal(const channel::WindowSize& size) {
  Fd master(::openat(context_.terminals, "ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  if (!master) return fail_errno(errno, "open a terminal");
  int locked = 0;
  if (::ioctl(master.get(), TIOCSPTLCK, &locked) != 0)
    return fail_errno(errno, "unlock a terminal");
  child_ends_[0] = Fd(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!child_ends_[0]) return fail_errno(errno, "open a terminal");
  if (::fchown(child_ends_[0].get(), launch_.identity.uid, static_cast<gid_t>(-1)) != 0)
    return fail_errno(errno, "give the terminal to the command");
  const winsize window{size.rows, size.columns, 0, 0};
  (void)::ioctl(master.get(), TIOCSWINSZ, &window);
  // Two descriptors, so that reading and writing are watched independently.
  ASSIGN(stdin_, master.duplicate());
  terminal_ = master.get();
  outputs_.push_back({Pipe::kStdout, std::move(master)});
  return {};
}

void Command::read_reports() {
  while (true) {
    LaunchReport report;
    const ssize_t size = ::read(reports_.get(), &report, sizeof report);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size != static_cast<ssize_t>(sizeof report)) break;
    if (report.kind == LaunchReport::Kind::kPid)
      set_pid(report.value);
    else
      failure_ = report;
  }
  context_.loop.remove(reports_.get());
  reports_.reset();
  launched();
}

void Command::set_pid(pid_t pid) {
  pid_ = pid;
  if (reset_ && !detached_ && group_) group_->kill();  // the reset came while it was being born
  context_.expect_end(pid);
}

// The pipe is closed: execve succeeded, or somebody reported why not, or the entrant was killed.
void Command::launched() {
  if (failure_) return finish(exit_from_failure(*failure_, launch_));
  if (pid_ < 0) return finish({137, SIGKILL, "it was killed while it was being started"});
  started_ = true;
  send({stream_, FrameType::kStarted, 0, {}});
  for (const int number : std::exchange(early_signals_, {})) deliver_signal(number);
  for (Output& output : outputs_) watch(output);
  write_stdin();
  if (!exit_) return;
  arm_quiet_timer();
  settle();
}

// ---- From the host
// -------------------------------------------------------------------------------------------------------

Status Command::take(const Frame& frame) {
  TRY(monitor_.from_host(frame));
  switch (frame.type) {
    case FrameType::kData:
      (void)stdin_window_.received(frame.payload.size());  // the monitor has checked it
      stdin_queue_.insert(stdin_queue_.end(), frame.payload.begin(), frame.payload.end());
      stdin_eof_ = frame.eof();
      write_stdin();
      break;
    case FrameType::kCredit:
      for (Output& output : outputs_) {
        if (started_ && output.pipe == frame.pipe()) watch(output);
      }
      break;
    case FrameType::kSignal:
      deliver_signal(channel::read_signal(frame));
      break;
    case FrameType::kResize: {
      const channel::WindowSize size = channel::read_resize(frame);
      const winsize window{size.rows, size.columns, 0, 0};
      if (terminal_ >= 0) (void)::ioctl(terminal_, TIOCSWINSZ, &window);
      break;
    }
    case FrameType::kReset:
      reset();
      break;
    default:
      break;
  }
  return {};
}

void Command::deliver_signal(int number) {
  if (exit_) return;
  if (!started_) {
    if (early_signals_.size() < kMaxEarlySignals) early_signals_.push_back(number);
    return;
  }
  // On a terminal the foreground job is meant, which a shell moves about; else the group that
  // setsid() made.
  pid_t group = 0;
  if (terminal_ < 0 || ::ioctl(terminal_, TIOCGPGRP, &group) != 0 || group <= 1) group = pid_;
  (void)::kill(-group, number);
}

void Command::reset() {
  reset_ = true;
  for (Output& output : outputs_) close_output(output);
  close_stdin();
  if (group_ && !detached_) group_->kill();
  settle();
}

void Command::write_stdin() {
  if (!started_ && stdin_) return;
  size_t consumed = 0;
  while (stdin_ && consumed < stdin_queue_.size()) {
    const ssize_t size =
        ::write(stdin_.get(), stdin_queue_.data() + consumed, stdin_queue_.size() - consumed);
    if (size > 0) {
      consumed += static_cast<size_t>(size);
    } else if (errno == EAGAIN) {
      if (!context_.loop.watches(stdin_.get()))
        (void)context_.loop.add(stdin_.get(), EventLoop::kWrite,
                                [this](uint32_t) { write_stdin(); });
      break;
    } else if (errno != EINTR) {
      close_stdin();  // the program does not read any more
    }
  }
  // What nobody will read counts as read: the host's input must not stall.
  if (!stdin_) consumed = stdin_queue_.size();
  stdin_queue_.erase(stdin_queue_.begin(), stdin_queue_.begin() + static_cast<ptrdiff_t>(consumed));
  const uint32_t grant = stdin_window_.consumed(consumed);
  if (grant != 0 && !finished_) send(channel::credit_frame(stream_, Pipe::kStdin, grant).view());
  if (!stdin_queue_.empty() || !stdin_) return;
  context_.loop.remove(stdin_.get());
  if (!stdin_eof_) return;
  if (terminal_ >= 0) (void)!::write(stdin_.get(), &kEndOfTransmission, 1);
  close_stdin();
}

void Command::close_stdin() {
  if (stdin_) context_.loop.remove(stdin_.get());
  stdin_.reset();
}

// ---- Output
// --------------------------------------------------------------------------------------------------------------

// A descriptor whose other end hung up is always ready, so without credit it is not watched at all.
void Command::watch(Output& output) {
  if (!output.open()) return;
  const int fd = output.fd.get();
  const bool wanted = monitor_.available(output.pipe) != 0;
  if (wanted == context_.loop.watches(fd)) return;
  if (!wanted) return context_.loop.remove(fd);
  const size_t index = static_cast<size_t>(&output - outputs_.data());
  const Status added = context_.loop.add(fd, EventLoop::kRead, [this, index](uint32_t) {
    pump(outputs_[index]);
    if (exit_) settle();
  });
  if (!added) close_output(output);
}

// One chunk a round: the loop is shared with every other stream.
void Command::pump(Output& output) {
  std::array<uint8_t, channel::kDataChunk> buffer;
  const size_t room = std::min<size_t>(buffer.size(), monitor_.available(output.pipe));
  const ssize_t size = ::read(output.fd.get(), buffer.data(), room);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size < 0 && launch_.tty && !exit_) return revisit_terminal();
  if (size <= 0) {
    send(channel::data_frame(stream_, output.pipe, {}, true));
    return close_output(output);
  }
  const auto count = static_cast<size_t>(size);
  send(channel::data_frame(stream_, output.pipe, ByteView(buffer).first(count)));
  output.owed -= std::min(output.owed, count);
  watch(output);
  if (exit_) arm_quiet_timer();
}

// EIO says that nobody has the terminal open just now. A program may close its descriptors and
// still run (coreutils do so before they exit) or open /dev/tty again: were the terminal closed
// now, it would be killed by SIGHUP. So it is looked at again until the end.
void Command::revisit_terminal() {
  constexpr Duration kInterval = 20ms;
  context_.loop.remove(outputs_.front().fd.get());
  if (terminal_timer_ != 0) return;
  terminal_timer_ = context_.loop.after(kInterval, [this] {
    terminal_timer_ = 0;
    watch(outputs_.front());
  });
}

void Command::close_output(Output& output) {
  if (!output.open()) return;
  context_.loop.remove(output.fd.get());
  if (output.fd.get() == terminal_) terminal_ = -1;
  output.fd.reset();
}

// ---- The end
// -------------------------------------------------------------------------------------------------------------

void Command::process_ended(int wait_status) {
  exit_ = exit_from_wait(wait_status);
  ended_at_ = monotonic_now();
  for (Output& output : outputs_) {
    int present = 0;
    if (output.open() && ::ioctl(output.fd.get(), FIONREAD, &present) == 0)
      output.owed = static_cast<size_t>(std::max(present, 0));
  }
  if (started_)
    for (Output& output : outputs_) watch(output);
  // Before execve nothing is known yet about why it ended: launched() goes on.
  if (!started_ && reports_) return;
  arm_quiet_timer();
  settle();
}

void Command::arm_quiet_timer() {
  if (quiet_timer_ != 0) context_.loop.cancel(quiet_timer_);
  quiet_timer_ = context_.loop.after(kQuiet, [this] {
    quiet_timer_ = 0;
    settle();
  });
}

void Command::settle() {
  if (finished_ || !exit_ || (!started_ && reports_)) return;
  const bool late = monotonic_now() - ended_at_ >= kPatience;
  for (const Output& output : outputs_) {
    if (!output.open()) continue;
    const bool blocked = monitor_.available(output.pipe) == 0;
    if (output.owed != 0 || (blocked && !late)) return;  // the reader's next credit brings us back
    if (!late && quiet_timer_ != 0) return;
  }
  finish(*exit_);
}

void Command::finish(const Exit& exit) {
  if (std::exchange(finished_, true)) return;
  release();
  send({stream_, FrameType::kExit, 0, channel::encode(exit)});
  context_.done();
}

}  // namespace sandbox::guest
