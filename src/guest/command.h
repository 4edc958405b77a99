#pragma once
// One exec stream in the guest: the command's streams, its credit and its end.
//
// States: launching (the entrant is at work) → running → draining (the process has ended, its
// output not yet) → done (kExit sent).
//
// Draining. What was in the pipes when the process ended is delivered, however slow the reader is.
// Beyond that a background child may still hold a pipe open and write for ever: after kQuiet
// without a byte, or kPatience in all, the pipes are closed and the status goes out. Children left
// behind go on running without their output, as in a container.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/event_loop.h"
#include "channel/stream.h"
#include "guest/workload.h"

namespace sandbox::guest {

// What a command needs of sentry.
struct CommandContext {
  EventLoop& loop;
  const Workload& workload;
  int terminals;  // the workload's devpts
  std::function<void(const channel::Frame&)> send;
  // The end of process `pid` of the command is wanted: call process_ended() once, at once when it
  // has been seen already.
  std::function<void(pid_t pid)> expect_end;
  std::function<void()>
      done;  // kExit was sent; the command may be destroyed after the current handler
};

class Command {
 public:
  static constexpr Duration kQuiet = 200ms;
  static constexpr Duration kPatience = 2s;

  Command(uint32_t stream, CommandContext context);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // Always ends with done(), for a program that cannot be started too.
  void start(const channel::ExecRequest& request, Identity identity);
  void refuse(const channel::Exit& exit) { finish(exit); }

  // A frame of this stream other than kExec. An error is a violation by the host.
  Status take(const channel::Frame& frame);
  void process_ended(int wait_status);
  [[nodiscard]] pid_t entrant() const { return entrant_; }
  void terminate() const {
    if (group_) group_->terminate();
  }
  // Takes what is left of its process tree with it.
  [[nodiscard]] std::optional<CommandGroup> take_group() {
    return std::exchange(group_, std::nullopt);
  }

 private:
  struct Output {
    channel::Pipe pipe;
    Fd fd;
    size_t owed = 0;  // bytes that were there when the process ended
    [[nodiscard]] bool open() const { return fd.valid(); }
  };

  Status begin(const channel::ExecRequest& request, Identity identity);
  Status open_terminal(const channel::WindowSize& size);
  Status open_pipes(const Identity& identity);
  Status open_null();

  void send(const channel::Frame& frame);
  void read_reports();
  void launched();
  void set_pid(pid_t pid);
  void deliver_signal(int number);
  void write_stdin();
  void close_stdin();
  void watch(Output& output);
  void pump(Output& output);
  void revisit_terminal();
  void close_output(Output& output);
  void settle();  // decides whether draining is over
  void arm_quiet_timer();
  void reset();
  void finish(const channel::Exit& exit);
  void release();

  uint32_t stream_;
  CommandContext context_;
  channel::StreamMonitor monitor_;  // order and credit in both directions
  Launch launch_;
  std::optional<CommandGroup> group_;
  Fd reports_;
  Fd child_ends_[3];
  pid_t entrant_ = -1;
  pid_t pid_ = -1;
  std::optional<LaunchReport> failure_;

  Fd stdin_;
  Bytes stdin_queue_;
  bool stdin_eof_ = false;
  channel::ReceiveWindow stdin_window_;  // when to give credit back
  int terminal_ = -1;                    // borrowed from outputs_, while open
  std::vector<Output> outputs_;

  std::optional<channel::Exit> exit_;
  Instant ended_at_ = Instant::never();
  EventLoop::TimerId quiet_timer_ = 0;
  EventLoop::TimerId terminal_timer_ = 0;
  std::vector<int> early_signals_;
  bool detached_ = false;
  bool started_ = false;
  bool reset_ = false;
  bool finished_ = false;
};

}  // namespace sandbox::guest
