#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/confine.h"
#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "machine/disk.h"
#include "store/run_record.h"
#include "supervisor/failure_report.h"
#include "supervisor/network.h"
#include "supervisor/resolv_conf.h"

namespace sandbox {

namespace {

using nlohmann::json;

constexpr int kWireBuffer = 4 << 20;  // bytes each way; QEMU must never wait for a wake-up of ours
constexpr Duration kClockInterval = 30s;  // the guest's clock drifts while the host is busy
constexpr Duration kResolverInterval =
    5s;                                 // how long a change of the host's resolvers may go unseen
constexpr int kLastConsoleChunks = 16;  // of 64 KiB: more than a pipe holds
constexpr Duration kHelperGrace = 2s;
constexpr Duration kMachineGrace =
    500ms;  // between a port that closed and the process that is gone
constexpr const char* kResolvConf = "/etc/resolv.conf";

Result<std::array<uint8_t, 6>> random_mac() {
  // 52:54:00 is the locally administered prefix that QEMU users expect to see.
  std::array<uint8_t, 6> mac = {0x52, 0x54, 0x00};
  if (::getrandom(mac.data() + 3, 3, 0) != 3) return fail_errno(errno, "getrandom");
  return mac;
}

std::string mac_text(const std::array<uint8_t, 6>& mac) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", mac[0], mac[1], mac[2], mac[3],
                     mac[4], mac[5]);
}

std::vector<std::string> host_resolvers() {
  return parse_nameservers(read_file(kResolvConf, 1U << 20).value_or(""));
}

Result<std::pair<Fd, Fd>> wire_pair() {
  ASSIGN(auto pair, socket_pair(SocketKind::kStream));
  set_socket_buffers(pair.first.get(), kWireBuffer);
  set_socket_buffers(pair.second.get(), kWireBuffer);
  return pair;
}

// Asks by closing its control socket, insists after a while, and sees it gone in either case.
void end_helper(std::optional<Helper>& helper) {
  if (!helper) return;
  helper->close_control();
  if (helper->wait(kHelperGrace)) return;
  helper->kill();
  helper->wait(kHelperGrace);
}

}  // namespace

Supervisor::~Supervisor() = default;

Result<std::unique_ptr<Supervisor>> Supervisor::create(SandboxSpec spec, SupervisorFds fds) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(spec)));
  ASSIGN(supervisor->loop_, EventLoop::create());
  supervisor->created_ns_ = wall_now_ns();
  ASSIGN(const Fd client, fds.client.duplicate());
  Status status = supervisor->start(std::move(fds));
  if (status) return supervisor;
  // Nothing may be left behind, and the client must learn why.
  Bytes report;
  channel::append_frame(report,
                        {0, channel::FrameType::kError, 0,
                         channel::encode(channel::ErrorReport{failure_report(status.error())})});
  (void)::send(client.get(), report.data(), report.size(), MSG_NOSIGNAL);  // it may be gone
  supervisor->failure_ = status.error();
  supervisor->shut_down();
  return fail(std::move(status.error()));
}

Status Supervisor::start(SupervisorFds fds) {
  lock_ = std::move(fds.lock);
  TRY(write_run_record("running", std::nullopt));
  // What an earlier sandbox of this name left when it was killed.
  TRY(remove_tree(spec_.run_dir + "/disk.qcow2"));
  TRY(remove_tree(spec_.run_dir + "/audit"));
  TRY(make_private_dir(spec_.run_dir + "/audit"));
  ASSIGN(control_server_, ControlServer::create(*loop_, spec_.run_dir));
  ASSIGN(auto network, wire_pair());
  ASSIGN(auto ctl, wire_pair());
  ASSIGN(auto files, wire_pair());
  int console[2];
  if (::pipe2(console, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  Fd console_out(console[0]);

  BootState boot{std::move(fds.boot_ram), std::move(fds.boot_state), spec_.shape, spec_.boot_key};
  Wires wires;
  wires.network = std::move(network.second);
  wires.ctl = std::move(ctl.second);
  wires.fs = std::move(files.second);
  wires.console = Fd(console[1]);
  ASSIGN(Fd overlay, create_overlay(spec_.run_dir + "/disk.qcow2"));
  wires.disks.push_back({std::move(overlay), std::move(fds.base_disk), false});
  ASSIGN(vmm_, Vmm::restore(spec_.qemu, boot, std::move(wires)));
  log::trace("qemu spawned");

  TRY(start_helpers(std::move(network.first), std::move(files.first)));
  log::trace("helpers started");
  TRY(start_guest_link(std::move(ctl.first), std::move(fds.client)));
  TRY(send_orders());
  loop_->run_once(0ns);  // a command that the client has sent already travels with the orders
  TRY(vmm_->load());
  log::trace("guest running");
  for (Helper* helper : {&*recorder_, &*gateway_}) TRY(helper->wait_ready());
  if (files_) TRY(files_->wait_ready());
  log::trace("helpers ready");
  TRY(watch_console(std::move(console_out)));
  TRY(watch_everything());
  TRY(start_control(std::move(fds.control), std::move(fds.published)));
  return confine();
}

Status Supervisor::start_helpers(Fd gateway_wire, Fd files_wire) {
  ASSIGN(auto gateway_records, socket_pair(SocketKind::kSeqPacket));
  ASSIGN(auto files_records, socket_pair(SocketKind::kSeqPacket));
  ASSIGN(auto own_records, socket_pair(SocketKind::kSeqPacket));
  ASSIGN(const Fd audit_dir, open_file(spec_.run_dir + "/audit", O_RDONLY | O_DIRECTORY));
  const json recorder = {{"sources",
                          {{{"fd", 10}, {"name", "gateway"}},
                           {{"fd", 11}, {"name", "files"}},
                           {{"fd", 12}, {"name", "supervisor"}}}},
                         {"limit_bytes", 32U << 20}};
  ASSIGN(recorder_, Helper::start("sandbox-recorder", recorder.dump(),
                                  {{audit_dir.get(), 5},
                                   {gateway_records.second.get(), 10},
                                   {files_records.second.get(), 11},
                                   {own_records.second.get(), 12}}));
  ASSIGN(records_, audit::RecordSink::create(*loop_, std::move(own_records.first)));

  ASSIGN(mac_, random_mac());
  resolvers_ = host_resolvers();
  json gateway = {{"wire", "stream"},
                  {"mtu", spec_.mtu},
                  {"guest_mac", mac_text(mac_)},
                  {"gateway_mac", network::kGatewayMac},
                  {"guest_ip", network::kGuest.text()},
                  {"gateway_ip", network::kGateway.text()},
                  {"prefix", network::kPrefix},
                  {"allow", spec_.allow},
                  {"deny", spec_.deny},
                  {"resolvers", resolvers_}};
  if (spec_.proxy) gateway["upstream_proxy"] = json::parse(to_json(*spec_.proxy));
  ASSIGN(gateway_, Helper::start("sandbox-gateway", gateway.dump(),
                                 {{gateway_wire.get(), 5}, {gateway_records.first.get(), 6}}));
  // It waits in the socket, ahead of the guest's first packet.
  if (spec_.ask) TRY(gateway_->send(json{{"op", "ask"}, {"on", true}}.dump()));
  if (spec_.shares.empty()) return {};
  json shares = json::array();
  for (size_t i = 0; i < spec_.shares.size(); ++i)
    shares.push_back({{"id", i + 1},
                      {"path", spec_.shares[i].host_path},
                      {"read_only", spec_.shares[i].read_only}});
  const json files = {{"uid", 1000}, {"gid", 1000}, {"shares", shares}};
  ASSIGN(files_, Helper::start("sandbox-files", files.dump(),
                               {{files_wire.get(), 5}, {files_records.first.get(), 6}}));
  return {};
}

Status Supervisor::start_guest_link(Fd ctl, Fd client) {
  GuestLink::Events events;
  events.ready = [this](const channel::Ready& ready) {
    log::trace("guest ready");
    for (const std::string& warning : ready.warnings) note(warning);
  };
  events.failed = [this](Error why) {
    // A machine that died closes its ports first; then its end is the reason and this only a
    // symptom.
    if (vmm_->wait(kMachineGrace)) return machine_ended();
    end_because(std::move(why));
  };
  events.client_gone = [this] { end_because(std::nullopt); };
  guest_ =
      std::make_unique<GuestLink>(*loop_, std::move(ctl), std::move(client), std::move(events));
  return guest_->start();
}

Status Supervisor::send_orders() {
  channel::ResumeRequest orders;
  // getrandom(2) does not fail for 32 bytes once the pool is initialised, which it was before any
  // login.
  if (::getrandom(orders.entropy.data(), orders.entropy.size(), 0) !=
          static_cast<ssize_t>(orders.entropy.size()) ||
      ::getrandom(&orders.nonce, sizeof orders.nonce, 0) !=
          static_cast<ssize_t>(sizeof orders.nonce))
    return fail(Code::kIo, "the host gave no randomness");
  orders.hostname = spec_.name.substr(0, spec_.name.find('.'));
  channel::Network net;
  net.mac = mac_;
  net.address = network::kGuest;
  net.prefix = network::kPrefix;
  net.gateway = network::kGateway;
  net.dns = network::kGateway;
  net.mtu = spec_.mtu;
  orders.network = net;
  orders.disk_bytes = spec_.disk_bytes;
  for (size_t i = 0; i < spec_.shares.size(); ++i)
    orders.shares.push_back({static_cast<uint32_t>(i + 1), spec_.shares[i].guest_path,
                             spec_.shares[i].read_only, spec_.shares[i].single_file});
  if (!spec_.workspace.empty() && spec_.workspace != "/workspace")
    orders.links.push_back({"/workspace", spec_.workspace});
  orders.account = channel::Account{};
  orders.profile = spec_.profile;
  orders.host_roots = spec_.host_roots;
  orders.wall_ns = static_cast<uint64_t>(wall_now_ns());
  guest_->resume(orders);
  return {};
}

Status Supervisor::watch_console(Fd console) {
  console_fd_ = std::move(console);
  TRY(set_nonblocking(console_fd_.get(), true));
  ASSIGN(console_, ConsoleLog::open(spec_.run_dir));
  return loop_->add(console_fd_.get(), EventLoop::kRead, [this](uint32_t) {
    if (!read_console()) loop_->remove(console_fd_.get());
  });
}

// True as long as more can come.
bool Supervisor::read_console() {
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(console_fd_.get(), buffer.data(), buffer.size());
  if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
  // A full disk must not stop the sandbox: the console is for people.
  (void)console_->append({buffer.data(), static_cast<size_t>(n)});
  return true;
}

Status Supervisor::watch_everything() {
  for (Helper* helper : {&*recorder_, &*gateway_, files_ ? &*files_ : nullptr}) {
    if (helper == nullptr) continue;
    TRY(loop_->add(helper->pidfd(), EventLoop::kRead, [this, helper](uint32_t) {
      loop_->remove(helper->pidfd());
      (void)helper->wait(0ns);
      end_because(helper->obituary());
    }));
    TRY(loop_->add(helper->errors(), EventLoop::kRead, [this, helper](uint32_t events) {
      helper->drain_errors();
      if ((events & EventLoop::kHangup) != 0) loop_->remove(helper->errors());
    }));
  }
  TRY(loop_->add(vmm_->pidfd(), EventLoop::kRead, [this](uint32_t) {
    loop_->remove(vmm_->pidfd());
    machine_ended();
  }));
  TRY(loop_->add(vmm_->qmp_fd(), EventLoop::kRead, [this](uint32_t) {
    if (!vmm_->read_events()) loop_->remove(vmm_->qmp_fd());
  }));
  watch_resolvers();
  keep_clock();
  return {};
}

void Supervisor::keep_clock() {
  loop_->after(kClockInterval, [this] {
    guest_->set_clock();
    keep_clock();
  });
}

void Supervisor::machine_ended() {
  (void)vmm_->wait(kMachineGrace);
  // Its last words say whether the guest panicked; nothing writes any more, so this ends.
  for (int chunks = 0; console_ && chunks < kLastConsoleChunks && read_console(); ++chunks) {
  }
  Vmm::End end = vmm_->end(console_ ? console_->tail() : "");
  if (end.orderly) end.error = Error{Code::kInternal, "the guest powered itself off"};
  end_because(std::move(end.error));
}

void Supervisor::watch_resolvers() {
  loop_->after(kResolverInterval, [this] {
    if (auto now = host_resolvers(); now != resolvers_) {
      resolvers_ = std::move(now);
      gateway_link_->ask(json{{"op", "resolvers"}, {"resolvers", resolvers_}}.dump(), {},
                         [this](const Status& status) {
                           if (!status)
                             note(fmt::format("the host's resolvers: {}", status.error().message));
                         });
    }
    watch_resolvers();
  });
}

// What the ports of the command line get is what a later request gets; only here a failure is one
// of the start.
Status Supervisor::start_control(Fd client, std::vector<Fd> published) {
  gateway_link_ = std::make_unique<GatewayLink>(*loop_, gateway_->control());
  TRY(gateway_link_->watch());
  if (spec_.ask) gateway_link_->expect([](const Status&) {});
  Control::Events events;
  events.note = [this](std::string_view text) { note(text); };
  events.rules_changed = [this](const Control::Rules& rules) {
    spec_.allow = rules.allow;
    spec_.deny = rules.deny;
    return write_run_record("running", std::nullopt);
  };
  control_ = std::make_unique<Control>(*gateway_link_, Control::Rules{spec_.allow, spec_.deny},
                                       std::move(events));
  for (size_t i = 0; i < published.size(); ++i)
    control_->publish(std::move(published[i]), spec_.publish[i], [this](const auto& port) {
      if (!port) return end_because(port.error());
      note(fmt::format("published {}, at its start", control::text(*port)));
    });
  TRY(control_server_->start([this](const control::Request& request, std::vector<Fd> descriptors,
                                    const ControlServer::Client& from) {
    control_->handle(request, std::move(descriptors), from);
  }));
  return control_server_->adopt(std::move(client));
}

// After the last child was started. What remains is reading and writing open descriptors, the run
// directory, and a look at the host's resolvers.
Status Supervisor::confine() {
  confine::forbid_core_files();
  TRY(confine::drop_privileges(confine::Parent::kMayDie));
  std::vector<confine::PathRight> paths = {{spec_.run_dir, true}, {"/etc", false}};
  // resolv.conf is often a link into one of these.
  for (const char* folder : {"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager"})
    if (::access(folder, F_OK) == 0) paths.push_back({folder, false});
  if (Status status = confine::landlock_only(paths, false);
      !status && status.error().code != Code::kUnavailable)
    return status;
  return confine::seccomp_allow({
      "epoll_wait", "epoll_pwait", "epoll_ctl", "poll",       "ppoll",  // the loop
      "recvfrom",   "recvmsg",     "sendto",    "sendmsg",    "readv",
      "writev",     "pread64",  // wires, QMP, control
      "openat",     "open",        "fstat",     "newfstatat", "statx",
      "lseek",      "fcntl",  // run directory, resolv.conf
      "mkdir",      "unlink",      "unlinkat",  "rmdir",      "rename",
      "renameat",   "renameat2",   "fchmod",    "fsync",      "getdents64",
      "ftruncate",  "access",      "faccessat", "faccessat2", "readlink",
      "readlinkat", "shutdown",    "wait4",     "waitid",     "pidfd_send_signal",  // children
      "getuid",     "geteuid",     "umask",     "flock",      "accept4",
      "getsockopt", "getsockname",  // the control socket; published sockets
  });
}

void Supervisor::note(std::string_view text) {
  audit::Record record;
  record.kind = audit::Kind::kNote;
  record.text = std::string(text);
  records_->write(std::move(record));
}

Status Supervisor::run() {
  if (!ending_) loop_->run();
  if (failure_) {
    guest_->report(*failure_);
    note(fmt::format("the sandbox was ended: {}", failure_->message));
  }
  guest_->flush();
  shut_down();
  if (failure_) return fail(*failure_);
  return {};
}

void Supervisor::end_because(std::optional<Error> why) {
  if (ending_) return;
  ending_ = true;
  failure_ = std::move(why);
  loop_->stop();
}

void Supervisor::shut_down() {
  if (vmm_) {
    vmm_->kill();
    vmm_->wait(kHelperGrace);
  }
  if (gateway_) gateway_->close_control();  // both at once: neither waits for the other
  end_helper(files_);
  end_helper(gateway_);
  if (records_) records_->finish();
  records_.reset();  // the recorder sees every source closed, writes its end record, and goes
  end_helper(recorder_);
  control_server_.reset();
  (void)remove_tree(spec_.run_dir + "/control");
  (void)remove_tree(spec_.run_dir + "/disk.qcow2");
  if (!failure_) {
    (void)remove_tree(spec_.run_dir + "/console.log");
    (void)remove_tree(spec_.run_dir + "/console.1.log");
  }
  if (const Status status = write_run_record(failure_ ? "failed" : "ended", failure_); !status)
    log::line(status.error().message);
}

Status Supervisor::write_run_record(std::string_view state, const std::optional<Error>& why) {
  RunRecord record;
  record.name = spec_.name;
  record.image = spec_.image;
  record.command = spec_.command;
  record.allow = spec_.allow;
  record.deny = spec_.deny;
  record.state = std::string(state);
  record.created_ns = created_ns_;
  if (state != "running") record.ended_ns = wall_now_ns();
  if (why) record.failure = why->message;
  return write_run_record_file(spec_.run_dir, record);
}

}  // namespace sandbox
