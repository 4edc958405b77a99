#pragma once
// PID 1 of the guest after its boot: one thread, one event loop, the control channel on one side
// and the commands on the other.
//
// States: waiting (kHello sent; this is what a boot state holds) → running (kResume carried out,
// kReady sent) → stopping. The host is obeyed but its bytes are checked like anybody's: a violation
// ends the machine.

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/event_loop.h"
#include "channel/protocol.h"
#include "guest/command.h"
#include "guest/resume.h"
#include "guest/workload.h"

namespace sandbox::guest {

class Sentry {
 public:
  static Result<std::unique_ptr<Sentry>> create(Booted booted);
  void run();  // returns when the machine is to be switched off: everything is written back by then

 private:
  enum class State { kWaiting, kRunning, kStopping };

  explicit Sentry(Booted booted) : booted_(std::move(booted)) {}
  void greet();
  Status watch_children();
  Status watch_control();
  void control_ready(uint32_t ready);
  void read_control();
  void flush_control();
  void send(const channel::Frame& frame) { out_.push(frame); }

  Status dispatch(const channel::Frame& frame);
  Status on_resume(const channel::Frame& frame);
  Status on_exec(const channel::Frame& frame);
  Status on_shutdown(const channel::Frame& frame);
  Status carry_out(const channel::ResumeRequest& request);
  Result<Identity> identity_for(const std::string& user) const;
  CommandContext context_for(uint32_t stream);

  void reap();
  void child_ended(pid_t pid, int wait_status);
  void expect_end(uint32_t stream, pid_t pid);
  void command_done(uint32_t stream);
  void sweep();  // end of a round: finished commands, empty cgroups, output

  void fail_sandbox(const Error& error);
  void await_end_of_commands();
  void end_workload();
  void write_back();

  Booted booted_;
  std::unique_ptr<EventLoop> loop_;
  Fd children_;  // signalfd for SIGCHLD
  channel::FrameDecoder in_;
  channel::SendQueue out_;
  State state_ = State::kWaiting;

  std::optional<Resumed> resumed_;
  std::optional<Workload> workload_;
  std::optional<channel::Account> account_;
  std::map<uint32_t, std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<Command>> finished_;
  std::vector<CommandGroup> groups_;    // of finished commands, removed when empty
  std::map<pid_t, uint32_t> expected_;  // pid → stream
  std::map<pid_t, int>
      unclaimed_;  // ended before its pid was reported; bounded by commands being started
  uint32_t last_stream_ = 0;
  Instant kill_at_ = Instant::never();
};

}  // namespace sandbox::guest
