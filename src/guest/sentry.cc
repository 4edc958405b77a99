#include "guest/sentry.h"

#include <poll.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "base/log.h"

namespace sandbox::guest {
namespace {

using channel::Frame;
using channel::FrameType;

constexpr size_t kMaxCommands = 256;
constexpr Duration kReconnect = 20ms;  // how soon a port without a host is looked at again
constexpr Duration kStopPoll = 20ms;

tl::unexpected<Error> violation(const Frame& frame, std::string_view why) {
  return fail(Code::kProtocol, "channel: a {} frame {}", channel::name_of(frame.type), why);
}

}  // namespace

Result<std::unique_ptr<Sentry>> Sentry::create(Booted booted) {
  std::unique_ptr<Sentry> sentry(new Sentry(std::move(booted)));
  ASSIGN(sentry->loop_, EventLoop::create());
  TRY(sentry->watch_children());
  TRY(sentry->watch_control());
  sentry->loop_->on_idle([self = sentry.get()] { self->sweep(); });
  sentry->greet();
  return sentry;
}

void Sentry::greet() {
  utsname kernel{};
  (void)::uname(&kernel);
  send({0, FrameType::kHello, 0,
        channel::encode(
            channel::Hello{channel::kProtocolVersion, SANDBOX_VERSION, kernel.release})});
  flush_control();
}

void Sentry::run() {
  loop_->run();
  write_back();
}

// ---- The port
// ------------------------------------------------------------------------------------------------------------

Status Sentry::watch_control() {
  return loop_->add(booted_.control.get(), EventLoop::kRead,
                    [this](uint32_t ready) { control_ready(ready); });
}

// A port whose host is away (between save and restore, for instance) hangs up for as long: it is
// left alone for a moment.
void Sentry::control_ready(uint32_t ready) {
  if ((ready & EventLoop::kWrite) != 0) flush_control();
  if ((ready & EventLoop::kRead) != 0) return read_control();
  if ((ready & EventLoop::kHangup) == 0) return;
  loop_->remove(booted_.control.get());
  loop_->after(kReconnect, [this] { (void)watch_control(); });
}

void Sentry::read_control() {
  std::array<uint8_t, 64 << 10> buffer;
  const ssize_t size = ::read(booted_.control.get(), buffer.data(), buffer.size());
  if (size <= 0) return;
  in_.feed(ByteView(buffer).first(static_cast<size_t>(size)));
  while (true) {
    const auto frame = in_.next();
    const Status done = !frame   ? Status(fail(frame.error()))
                        : *frame ? dispatch(**frame)
                                 : Status();
    if (!done) return fail_sandbox(done.error());
    if (!*frame) return;
  }
}

void Sentry::flush_control() {
  while (!out_.empty()) {
    const ByteView pending = out_.pending();
    const ssize_t size = ::write(booted_.control.get(), pending.data(), pending.size());
    if (size > 0) {
      out_.sent(static_cast<size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      break;
    }
  }
  loop_->modify(booted_.control.get(), EventLoop::kRead | (out_.empty() ? 0 : EventLoop::kWrite));
}

void Sentry::sweep() {
  for (const std::unique_ptr<Command>& command : finished_) {
    if (auto group = command->take_group()) groups_.push_back(std::move(*group));
  }
  finished_.clear();
  flush_control();
}

// ---- Frames
// --------------------------------------------------------------------------------------------------------------

Status Sentry::dispatch(const Frame& frame) {
  if (!channel::host_may_send(frame.type)) return violation(frame, "is not the host's to send");
  switch (frame.type) {
    case FrameType::kPing:
      send({0, FrameType::kPong, 0, frame.payload});
      return {};
    case FrameType::kPong:
      return {};
    case FrameType::kResume:
      return on_resume(frame);
    case FrameType::kClock: {
      ASSIGN(const channel::Clock clock, channel::decode_clock(frame.payload));
      return set_clock(clock.wall_ns);
    }
    case FrameType::kShutdown:
      return on_shutdown(frame);
    case FrameType::kExec:
      return on_exec(frame);
    default:
      break;
  }
  if (frame.stream > last_stream_) return violation(frame, "before its stream was opened");
  const auto command = commands_.find(frame.stream);
  if (command == commands_.end()) return {};  // it has ended; the host does not know yet
  return command->second->take(frame);
}

Status Sentry::on_resume(const Frame& frame) {
  if (state_ != State::kWaiting) return violation(frame, "comes twice");
  ASSIGN(const channel::ResumeRequest request, channel::decode_resume(frame.payload));
  state_ = State::kRunning;
  if (Status done = carry_out(request); !done) {
    return fail(std::move(done).error().while_doing("preparing the sandbox"));
  }
  send({0, FrameType::kReady, 0,
        channel::encode(channel::Ready{request.nonce, resumed_->warnings})});
  return {};
}

Status Sentry::carry_out(const channel::ResumeRequest& request) {
  ASSIGN(resumed_, guest::resume(booted_, request));
  ASSIGN(workload_, Workload::create(request.profile));
  account_ = request.account;
  return {};
}

CommandContext Sentry::context_for(uint32_t stream) {
  return {*loop_,
          *workload_,
          booted_.terminals.get(),
          [this](const Frame& frame) { send(frame); },
          [this, stream](pid_t pid) { expect_end(stream, pid); },
          [this, stream] { command_done(stream); }};
}

Result<Identity> Sentry::identity_for(const std::string& user) const {
  const auto text = [&](const char* path) {
    auto content = resumed_->root.read(path);
    return content ? std::move(*content) : std::string();
  };
  const std::string who = !user.empty() ? user
                          : account_    ? std::to_string(account_->uid)
                                        : std::string("0");
  return resolve_user(who, text("/etc/passwd"), text("/etc/group"));
}

Status Sentry::on_exec(const Frame& frame) {
  if (state_ == State::kWaiting) return violation(frame, "before the resume");
  if (frame.stream <= last_stream_) return violation(frame, "uses a stream again");
  last_stream_ = frame.stream;
  auto owned = std::make_unique<Command>(frame.stream, context_for(frame.stream));
  Command& command = *owned;
  const bool full = commands_.size() >= kMaxCommands;
  commands_.emplace(frame.stream, std::move(owned));
  // The payload is a client's, passed on unread: a bad one costs that client its command and nobody
  // the sandbox.
  if (const auto request = channel::decode_exec(frame.payload); !request) {
    command.refuse({126, 0, request.error().message});
  } else if (state_ == State::kStopping) {
    command.refuse({126, 0, "the sandbox is stopping"});
  } else if (full) {
    command.refuse({126, 0, fmt::format("{} commands run already", kMaxCommands)});
  } else if (auto identity = identity_for(request->user); identity) {
    command.start(*request, std::move(*identity));
  } else {
    command.refuse({126, 0, identity.error().message});
  }
  return {};
}

// ---- Children
// ------------------------------------------------------------------------------------------------------------

Status Sentry::watch_children() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  (void)::signal(SIGPIPE, SIG_IGN);
  children_ = Fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!children_) return fail_errno(errno, "signalfd");
  return loop_->add(children_.get(), EventLoop::kRead, [this](uint32_t) { reap(); });
}

void Sentry::reap() {
  signalfd_siginfo ignored;
  (void)!::read(children_.get(), &ignored, sizeof ignored);
  int status = 0;
  for (pid_t pid = ::waitpid(-1, &status, WNOHANG); pid > 0; pid = ::waitpid(-1, &status, WNOHANG))
    child_ended(pid, status);
}

void Sentry::child_ended(pid_t pid, int wait_status) {
  if (workload_ && pid == workload_->init()) {
    if (state_ == State::kStopping) return loop_->stop();
    return fail_sandbox({Code::kInternal, "the workload's first process ended"});
  }
  if (const auto known = expected_.find(pid); known != expected_.end()) {
    const auto command = commands_.find(known->second);
    expected_.erase(known);
    if (command != commands_.end()) command->second->process_ended(wait_status);
    return;
  }
  const bool entrant = std::any_of(commands_.begin(), commands_.end(), [&](const auto& entry) {
    return entry.second->entrant() == pid;
  });
  if (!entrant && unclaimed_.size() < kMaxCommands) unclaimed_[pid] = wait_status;
}

void Sentry::expect_end(uint32_t stream, pid_t pid) {
  expected_[pid] = stream;
  const auto early = unclaimed_.find(pid);
  if (early == unclaimed_.end()) return;
  const int status = early->second;
  unclaimed_.erase(early);
  child_ended(pid, status);
}

// The command is still on the stack: it is destroyed at the end of the round.
void Sentry::command_done(uint32_t stream) {
  const auto command = commands_.find(stream);
  if (command == commands_.end()) return;
  finished_.push_back(std::move(command->second));
  commands_.erase(command);
  std::erase_if(groups_, [](const CommandGroup& group) { return group.remove(); });
}

// ---- The end
// -------------------------------------------------------------------------------------------------------------

void Sentry::fail_sandbox(const Error& error) {
  log::line(error.message);
  send({0, FrameType::kError, 0, channel::encode(channel::ErrorReport{error.message})});
  state_ = State::kStopping;
  flush_control();
  if (workload_) workload_->kill_all();
  loop_->stop();
}

Status Sentry::on_shutdown(const Frame& frame) {
  ASSIGN(const channel::Shutdown orders, channel::decode_shutdown(frame.payload));
  if (state_ == State::kStopping) return {};
  state_ = State::kStopping;
  kill_at_ = loop_->now() + std::chrono::milliseconds(orders.grace_ms);
  for (const auto& [stream, command] : commands_) command->terminate();
  for (const CommandGroup& group : groups_) group.terminate();
  await_end_of_commands();
  return {};
}

void Sentry::await_end_of_commands() {
  std::erase_if(groups_, [](const CommandGroup& group) { return group.remove(); });
  if ((commands_.empty() && groups_.empty() && finished_.empty()) || loop_->now() >= kill_at_)
    return end_workload();
  loop_->after(kStopPoll, [this] { await_end_of_commands(); });
}

// Ends in child_ended() of the workload's pid 1; commands killed here still say kExit in the
// meantime.
void Sentry::end_workload() {
  if (!workload_) return loop_->stop();
  workload_->kill_all();
  loop_->after(2s, [this] { loop_->stop(); });
}

// The disk is mounted with discard, so freed blocks have been given back already and no trim is
// due.
void Sentry::write_back() {
  for (int round = 0; round < 50 && !out_.empty(); ++round) {
    flush_control();
    pollfd port{booted_.control.get(), POLLOUT, 0};
    if (!out_.empty()) (void)::poll(&port, 1, 20);
  }
  commands_.clear();
  finished_.clear();
  workload_.reset();
  if (resumed_ && resumed_->relay) resumed_->relay->stop();
  resumed_.reset();
  ::sync();
  for (const char* below : {"/dev", "/sys"})
    (void)::umount2((std::string(kNewRoot) + below).c_str(), MNT_DETACH);
  // Processes killed a moment ago may hold the file system until the kernel is done with them.
  for (int round = 0; round < 50; ++round) {
    if (::umount2(kNewRoot, 0) == 0 || errno != EBUSY) return;
    (void)::poll(nullptr, 0, 10);
  }
  log::line("the root disk stayed busy; its journal has everything");
}

}  // namespace sandbox::guest
