#include "machine/vmm.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "machine/command_line.h"
#include "machine/diagnosis.h"
#include "machine/ram.h"

namespace sandbox {

namespace {

using Json = nlohmann::json;

constexpr int kControlFd = 3;
constexpr int kFirstQemuFd = 10;
constexpr uint64_t kLeastMib = 256;
constexpr unsigned kMostCpus = 64;
constexpr uint64_t kLeastAvailable = uint64_t{200}
                                     << 20;  // QEMU itself and what a guest touches at once
constexpr size_t kStderrKept = 64U << 10;
constexpr std::string_view kCapabilities =
    R"({"capabilities":[{"capability":"x-ignore-shared","state":true},{"capability":"events","state":true}]})";

// Numbers QEMU's descriptors and remembers which of ours is meant.
class FdTable {
 public:
  int add(int ours) {
    const int number = kFirstQemuFd + static_cast<int>(pairs_.size());
    pairs_.emplace_back(ours, number);
    return number;
  }
  [[nodiscard]] const std::vector<std::pair<int, int>>& pairs() const { return pairs_; }

 private:
  std::vector<std::pair<int, int>> pairs_;
};

uint64_t available_memory() {
  const auto text = read_file("/proc/meminfo", 65536);
  if (!text) return UINT64_MAX;
  for (const std::string_view line : split(*text, '\n')) {
    if (!line.starts_with("MemAvailable:")) continue;
    const std::string_view number = trim(line.substr(13, line.find("kB") - 13));
    if (const auto kib = parse_decimal(number)) return *kib * 1024;
  }
  return UINT64_MAX;
}

Status check_shape(const MachineShape& shape) {
  if (shape.memory_mib < kLeastMib)
    return fail(Code::kInvalid, "a sandbox needs at least {} MiB of memory", kLeastMib);
  if (shape.cpus < 1 || shape.cpus > kMostCpus)
    return fail(Code::kInvalid, "a sandbox has 1 to {} CPUs", kMostCpus);
  struct sysinfo info {};
  ::sysinfo(&info);
  const uint64_t total = (uint64_t{info.totalram} + info.totalswap) * info.mem_unit;
  const char* hint = "use a smaller --memory, or stop other sandboxes";
  if (shape.memory_mib << 20 > total)
    return fail(Error{Code::kLimit,
                      fmt::format("{} of memory were asked for, and this machine has {}",
                                  format_size(shape.memory_mib << 20), format_size(total)),
                      hint});
  if (const uint64_t left = available_memory(); left < kLeastAvailable)
    return fail(Error{Code::kLimit,
                      fmt::format("this machine has only {} of memory left", format_size(left)),
                      hint});
  return {};
}

// QEMU accepts some bad descriptors in silence and then has a dead wire.
Status check_wires(const Wires& wires) {
  for (const auto* wire : {&wires.network, &wires.ctl, &wires.fs}) {
    int type = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(wire->get(), SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM)
      return fail(Code::kInternal, "a wire of the machine is no stream socket");
  }
  struct stat st {};
  if (::fstat(wires.console.get(), &st) < 0 || !S_ISFIFO(st.st_mode))
    return fail(Code::kInternal, "the machine's console is no pipe");
  if (wires.disks.size() > kDiskSlots)
    return fail(Code::kInvalid, "a sandbox has at most {} disks", kDiskSlots);
  return {};
}

QemuFds number_descriptors(FdTable& table, const Wires& wires, int qmp, int ram) {
  QemuFds fds{};
  fds.qmp = table.add(qmp);
  fds.network = table.add(wires.network.get());
  fds.ctl = table.add(wires.ctl.get());
  fds.fs = table.add(wires.fs.get());
  fds.console = table.add(wires.console.get());
  fds.ram = table.add(ram);
  for (const DiskFds& disk : wires.disks) {
    const int overlay = table.add(disk.overlay.get());
    fds.disks.push_back({overlay, disk.base ? table.add(disk.base.get()) : -1, disk.durable});
  }
  return fds;
}

struct StderrPipe {
  Fd ours;
  Fd theirs;
};

// Both ends do not block: QEMU rather loses a line than waits for a reader.
Result<StderrPipe> stderr_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) return fail_errno(errno, "pipe2");
  return StderrPipe{Fd(fds[0]), Fd(fds[1])};
}

Result<std::vector<std::string>> launcher_words(const Qemu& qemu, Accel accel) {
  ASSIGN(std::string launcher, find_sibling("sandbox-launcher"));
  std::vector<std::string> words = {std::move(launcher), std::to_string(kControlFd)};
  words.insert(words.end(), qemu.binds.begin(), qemu.binds.end());
  if (accel == Accel::kKvm) words.emplace_back("/dev/kvm");
  words.emplace_back("--");
  words.push_back(qemu.binary);
  return words;
}

}  // namespace

// What the two kinds of start do not share.
struct Vmm::Start {
  Fd boot_ram;
  Fd state;
  Fd kernel;
  Fd initrd;
};

Result<std::unique_ptr<Vmm>> Vmm::restore(const Qemu& qemu, const BootState& boot, Wires wires) {
  Start start;
  ASSIGN(start.boot_ram, boot.ram.duplicate());
  ASSIGN(start.state, boot.state.duplicate());
  return spawn(qemu, boot.shape, std::move(start), std::move(wires));
}

Result<std::unique_ptr<Vmm>> Vmm::cold(const Qemu& qemu, const ColdBoot& boot,
                                       const MachineShape& shape, Wires wires) {
  Start start;
  ASSIGN(const std::string vmlinux, read_file(boot.kernel.vmlinux, size_t{256} << 20));
  ASSIGN(start.kernel, memory_file("vmlinux", vmlinux));
  ASSIGN(start.initrd, memory_file("initramfs", as_text(boot.initramfs)));
  return spawn(qemu, shape, std::move(start), std::move(wires));
}

Result<std::unique_ptr<Vmm>> Vmm::spawn(const Qemu& qemu, const MachineShape& shape, Start start,
                                        Wires wires) {
  TRY(check_shape(shape));
  TRY(check_wires(wires));
  std::unique_ptr<Vmm> vmm(new Vmm);
  vmm->memory_bytes_ = shape.memory_mib << 20;
  ASSIGN(vmm->ram_, new_guest_memory(vmm->memory_bytes_));
  ASSIGN(auto qmp, socket_pair(SocketKind::kStream));
  ASSIGN(auto control, socket_pair(SocketKind::kStream));
  ASSIGN(StderrPipe errors, stderr_pipe());

  FdTable table;
  const QemuFds fds = number_descriptors(table, wires, qmp.second.get(), vmm->ram_.get());
  BootFrom from = FromState{};
  if (start.kernel) from = FromKernel{table.add(start.kernel.get()), table.add(start.initrd.get())};
  SpawnSpec spec;
  ASSIGN(spec.argv, launcher_words(qemu, shape.accel));
  const auto arguments = qemu_arguments(shape, fds, from);
  spec.argv.insert(spec.argv.end(), arguments.begin(), arguments.end());
  spec.fds = table.pairs();
  spec.fds.emplace_back(control.second.get(), kControlFd);
  spec.fds.emplace_back(errors.theirs.get(), STDERR_FILENO);
  spec.env = std::vector<std::string>{};
  ASSIGN(Child child, sandbox::spawn(spec));

  vmm->child_pid_ = child.pid;
  vmm->child_pidfd_ = std::move(child.pidfd);
  vmm->launcher_ = std::move(control.first);
  vmm->stderr_ = std::move(errors.ours);
  vmm->qmp_ = QmpClient(std::move(qmp.first));
  vmm->state_ = std::move(start.state);
  vmm->boot_ram_ = std::move(start.boot_ram);
  log::trace("qemu spawned");
  if (vmm->boot_ram_) {
    // QEMU takes longer to reach its first look at the memory than this copy takes.
    Vmm* self = vmm.get();
    self->copying_ = std::thread([self] {
      self->copied_ =
          copy_sparse(self->boot_ram_.get(), self->ram_.get(), self->memory_bytes_, false);
      log::trace("guest memory copied");
    });
  }
  return vmm;
}

Vmm::~Vmm() {
  kill();
  if (copying_.joinable()) copying_.join();
  (void)wait(10s);
}

Status Vmm::load(Duration at_most) {
  const Instant deadline = monotonic_now() + at_most;
  Status status = qmp_.negotiate(deadline);
  if (!status) return fail(failure("starting QEMU", std::move(status.error())));
  log::trace("qemu answers");
  if (copying_.joinable()) copying_.join();
  boot_ram_.reset();
  if (!copied_) return fail(std::move(copied_.error()).while_doing("filling the guest's memory"));
  if (state_) {
    status = restore_state(deadline);
    if (!status) return fail(failure("restoring the boot state", std::move(status.error())));
    log::trace("boot state loaded");
  }
  status = unmount_host(deadline);
  if (!status) return fail(failure("taking the host's files from QEMU", std::move(status.error())));
  log::trace("host unmounted");
  if (!state_) return {};
  state_.reset();
  // The disks are locked here, so here is where a disk in use is found out.
  status = command_only("cont");
  if (!status) return fail(failure("starting the guest", std::move(status.error())));
  log::trace("guest runs");
  return {};
}

Status Vmm::restore_state(Instant deadline) {
  if (::lseek(state_.get(), 0, SEEK_SET) < 0) return fail_errno(errno, "seek");
  TRY(qmp_.execute("migrate-set-capabilities", kCapabilities, deadline));
  // QEMU announces a migrated machine with frames of its own under the network card's first
  // address, which is not the one this guest gets: on the wire they would look like spoofing.
  TRY(qmp_.execute("migrate-set-parameters", R"({"announce-rounds":0})", deadline));
  TRY(qmp_.execute("getfd", R"({"fdname":"state"})", deadline, state_.get()));
  TRY(qmp_.execute("migrate-incoming", R"({"uri":"fd:state"})", deadline));
  for (;;) {
    ASSIGN(const QmpMessage event, qmp_.wait_event({"MIGRATION"}, deadline));
    if (event.text.find("\"completed\"") != std::string::npos) return {};
    if (event.text.find("\"failed\"") != std::string::npos)
      return fail(Code::kTampered, "QEMU could not load it");
  }
}

Status Vmm::unmount_host(Instant deadline) {
  char answer = 'd';
  if (::send(launcher_.get(), &answer, 1, MSG_NOSIGNAL) != 1)
    return fail_errno(errno, "the launcher");
  pollfd wait{launcher_.get(), POLLIN, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - monotonic_now());
  if (::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0)
    return fail(Code::kUnavailable, "the launcher does not answer");
  if (::recv(launcher_.get(), &answer, 1, 0) != 1) return fail(Code::kIo, "the launcher ended");
  return {};
}

Result<std::string> Vmm::command(std::string_view name, std::string_view arguments_json,
                                 Duration at_most) {
  return qmp_.execute(name, arguments_json, monotonic_now() + at_most);
}

Status Vmm::command_only(std::string_view name) {
  TRY(command(name));
  return {};
}

Status Vmm::save(int state, int ram) {
  const Instant deadline = monotonic_now() + 60s;
  TRY(qmp_.execute("stop", "{}", deadline));
  TRY(qmp_.execute("migrate-set-capabilities", kCapabilities, deadline));
  TRY(qmp_.execute("migrate-set-parameters", R"({"max-bandwidth":10000000000})", deadline));
  TRY(qmp_.execute("getfd", R"({"fdname":"state"})", deadline, state));
  TRY(qmp_.execute("migrate", R"({"uri":"fd:state"})", deadline));
  for (;;) {
    ASSIGN(const QmpMessage event, qmp_.wait_event({"MIGRATION"}, deadline));
    if (event.text.find("\"completed\"") != std::string::npos) break;
    if (event.text.find("\"failed\"") == std::string::npos) continue;
    ASSIGN(const std::string why, qmp_.execute("query-migrate", "{}", deadline));
    return fail(Code::kIo, "QEMU could not save the machine: {}", why);
  }
  if (::ftruncate(ram, static_cast<off_t>(memory_bytes_)) < 0)
    return fail_errno(errno, "ftruncate");
  return copy_sparse(ram_.get(), ram, memory_bytes_, true);
}

bool Vmm::read_events() {
  const auto open = qmp_.poll();
  note_events();
  return open && *open;
}

void Vmm::note_events() {
  for (const QmpMessage& event : qmp_.take_events()) {
    if (event.name != "SHUTDOWN") continue;
    const Json data = Json::parse(event.text, nullptr, false);
    if (data.is_object() && data.contains("reason") && data["reason"].is_string())
      shutdown_reason_ = data["reason"];
  }
}

void Vmm::drain_stderr() {
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(stderr_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    if (stderr_text_.size() < kStderrKept) stderr_text_.append(buffer, static_cast<size_t>(n));
  }
}

void Vmm::kill() {
  launcher_.reset();
  if (child_pid_ > 0 && !wait_status_) kill_now(child_pidfd_);
}

bool Vmm::wait(Duration at_most) {
  if (wait_status_) return true;
  if (child_pid_ <= 0) return true;
  pollfd watch{child_pidfd_.get(), POLLIN, 0};
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(at_most);
  if (::poll(&watch, 1, static_cast<int>(milliseconds.count())) <= 0) return false;
  int status = 0;
  if (::waitpid(child_pid_, &status, 0) != child_pid_) status = 0;
  wait_status_ = status;
  (void)read_events();
  drain_stderr();
  return true;
}

// A failed start: QEMU usually ends by itself, and then its last words say more than what QMP saw.
Error Vmm::failure(std::string_view doing, std::optional<Error> seen) {
  const bool ended = wait(500ms);
  if (!ended) {
    drain_stderr();
    note_events();
  }
  Error error =
      diagnose(doing, {wait_status_, stderr_text_, {}, shutdown_reason_, std::move(seen)});
  kill();
  return error;
}

Vmm::End Vmm::end(std::string_view console_tail) {
  const bool panicked = console_tail.find("Kernel panic") != std::string_view::npos;
  const bool clean = wait_status_ && WIFEXITED(*wait_status_) && WEXITSTATUS(*wait_status_) == 0;
  if (clean && !panicked && shutdown_reason_ == "guest-shutdown") return {true, {}};
  return {false,
          diagnose("the machine ended", {wait_status_, stderr_text_, std::string(console_tail),
                                         shutdown_reason_, std::nullopt})};
}

}  // namespace sandbox
