#include "machine/boot_state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "base/text.h"
#include "channel/protocol.h"
#include "machine/boot_inputs.h"
#include "machine/command_line.h"
#include "machine/diagnosis.h"
#include "machine/disk.h"
#include "machine/initramfs.h"
#include "machine/known_digests.h"
#include "machine/vmm.h"

namespace sandbox {

namespace {

constexpr Duration kBootTime = 180s;  // 3 to 8 s under emulation; a loaded machine takes its time
constexpr uint64_t kSpaceNeeded = uint64_t{1} << 30;

struct Paths {
  std::string folder;
  [[nodiscard]] std::string inputs() const { return folder + "/inputs"; }
  [[nodiscard]] std::string ram() const { return folder + "/ram"; }
  [[nodiscard]] std::string state() const { return folder + "/state"; }
  [[nodiscard]] std::string digests() const { return folder + "/digests"; }
};

// Everything sentry says until it has said hello, and everything the kernel prints meanwhile.
class BootWatch {
 public:
  BootWatch(Fd ctl, Fd console) : ctl_(std::move(ctl)), console_(std::move(console)) {}

  Status wait_for_hello(Vmm& vmm, Progress& progress) {
    const Instant deadline = monotonic_now() + kBootTime;
    while (!hello_) {
      if (progress.cancelled()) return fail(Code::kCancelled, "interrupted");
      if (monotonic_now() > deadline)
        return fail(Code::kUnavailable,
                    "sentry did not report within {} s; the console's last words: {}",
                    kBootTime / 1s, escape_terminal(trim(console_text_)));
      pollfd watch[3] = {
          {ctl_.get(), POLLIN, 0}, {console_.get(), POLLIN, 0}, {vmm.pidfd(), POLLIN, 0}};
      if (::poll(watch, 3, 200) < 0) continue;
      read_console();
      if (watch[0].revents != 0) TRY(read_ctl());
      if (watch[2].revents != 0 && !hello_) {
        (void)vmm.wait(1s);
        read_console();
        return fail(vmm.end(console_text_).error);
      }
    }
    return {};
  }

 private:
  Status read_ctl() {
    std::array<uint8_t, 4096> buffer{};
    const ssize_t n = ::recv(ctl_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n <= 0) return {};  // QEMU's end is noticed by its pidfd
    decoder_.feed(ByteView(buffer).first(static_cast<size_t>(n)));
    ASSIGN(const auto frame, decoder_.next());
    if (!frame) return {};
    if (frame->type != channel::FrameType::kHello)
      return fail(Code::kProtocol, "sentry's first word was {}", channel::name_of(frame->type));
    hello_ = true;
    return {};
  }

  void read_console() {
    std::array<char, 4096> buffer{};
    ssize_t n = 0;
    while ((n = ::read(console_.get(), buffer.data(), buffer.size())) > 0) {
      console_text_.append(buffer.data(), static_cast<size_t>(n));
      constexpr size_t kKept = 4096;
      if (console_text_.size() > kKept) console_text_.erase(0, console_text_.size() - kKept);
    }
  }

  Fd ctl_;
  Fd console_;
  channel::FrameDecoder decoder_;
  std::string console_text_;
  bool hello_ = false;
};

struct BothEnds {
  Wires wires;
  Fd network, ctl, fs, console;
};

Result<BothEnds> unattached_wires() {
  BothEnds ends;
  const std::array<std::pair<Fd*, Fd*>, 3> pairs = {std::pair{&ends.network, &ends.wires.network},
                                                    std::pair{&ends.ctl, &ends.wires.ctl},
                                                    std::pair{&ends.fs, &ends.wires.fs}};
  for (const auto& [ours, theirs] : pairs) {
    ASSIGN(auto pair, socket_pair(SocketKind::kStream));
    *ours = std::move(pair.first);
    *theirs = std::move(pair.second);
  }
  int console[2];
  if (::pipe2(console, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  ends.console = Fd(console[0]);
  ends.wires.console = Fd(console[1]);
  TRY(set_nonblocking(ends.console.get(), true));
  return ends;
}

Status seal(int fd, const std::string& path) {
  if (::fsync(fd) < 0 || ::fchmod(fd, 0400) < 0) return fail_errno(errno, path);
  return {};
}

Status boot_and_save(const BootSpec& spec, const Paths& paths, Progress& progress) {
  ASSIGN(Bytes initramfs, build_initramfs(spec.kernel, spec.sentry));
  ASSIGN(BothEnds ends, unattached_wires());
  ASSIGN(const auto vmm, Vmm::cold(spec.qemu, {spec.kernel, std::move(initramfs)}, spec.shape,
                                   std::move(ends.wires)));
  TRY(vmm->load());
  BootWatch watch(std::move(ends.ctl), std::move(ends.console));
  TRY(watch.wait_for_hello(*vmm, progress));
  log::trace("booted; saving");
  ASSIGN(const Fd state, open_file(paths.state(), O_WRONLY | O_CREAT | O_EXCL));
  ASSIGN(const Fd ram, open_file(paths.ram(), O_WRONLY | O_CREAT | O_EXCL));
  TRY(vmm->save(state.get(), ram.get()));
  TRY(seal(state.get(), paths.state()));
  return seal(ram.get(), paths.ram());
}

std::string digests_text(std::string_view ram, std::string_view state) {
  return fmt::format("ram {}\nstate {}\n", ram, state);
}

Status make(const BootSpec& spec, const std::string& inputs, const Paths& target,
            KnownDigests& known, Progress& progress) {
  progress.step(fmt::format("booting a {} machine once, to start from its memory from now on",
                            format_size(spec.shape.memory_mib << 20)));
  const Paths fresh{target.folder + ".new"};
  TRY(remove_tree(fresh.folder));
  TRY(make_private_dir(fresh.folder));
  const auto build = [&]() -> Status {
    TRY(require_free_space(fresh.folder, kSpaceNeeded, "a boot state"));
    TRY(boot_and_save(spec, fresh, progress));
    ASSIGN(const Fd ram, open_file(fresh.ram(), O_RDONLY));
    ASSIGN(const Fd state, open_file(fresh.state(), O_RDONLY));
    ASSIGN(const std::string ram_digest, sparse_sha256_of_file(ram.get()));
    ASSIGN(const std::string state_digest, sha256_of_file(state.get()));
    TRY(write_file_atomic(fresh.digests(), digests_text(ram_digest, state_digest)));
    TRY(write_file_atomic(fresh.inputs(), inputs));
    TRY(remove_tree(target.folder));
    if (::rename(fresh.folder.c_str(), target.folder.c_str()) < 0)
      return fail_errno(errno, fmt::format("rename to {}", target.folder));
    return known.learn_sparse(ram.get(), target.ram(), ram_digest);
  };
  Status status = build();
  if (!status) {
    (void)remove_tree(fresh.folder);
    return fail(std::move(status.error()).while_doing("making a boot state"));
  }
  return {};
}

// The state on disk, when it is the one asked for and is intact. kNotFound: there is none. Anything
// else: discard it.
Result<BootState> open_verified(const BootSpec& spec, const std::string& inputs, const Paths& paths,
                                KnownDigests& known) {
  const auto have = read_file(paths.inputs(), 1 << 20);
  if (!have) return fail(Code::kNotFound, "no boot state");
  if (*have != inputs)
    return fail(Code::kInvalid, "its {} changed", first_difference(*have, inputs));
  ASSIGN(const std::string digests, read_file(paths.digests(), 4096));
  BootState boot;
  boot.shape = spec.shape;
  boot.key = sha256_hex(as_bytes(inputs));
  ASSIGN(boot.state, open_file(paths.state(), O_RDONLY));
  ASSIGN(boot.ram, open_file(paths.ram(), O_RDONLY));
  // The state is small and hashed each time; the memory is hashed when its file is not the one
  // known.
  ASSIGN(const std::string state, sha256_of_file(boot.state.get()));
  ASSIGN(const std::string ram, known.of_sparse(boot.ram.get(), paths.ram()));
  if (digests != digests_text(ram, state))
    return fail(Code::kTampered, "its bytes are not the ones that were saved");
  return boot;
}

}  // namespace

Result<BootState> ensure_boot_state(const Home& home, const BootSpec& spec, Progress& progress) {
  ASSIGN(const std::string root, home.boot_dir());
  const Paths paths{fmt::format("{}/{}m-{}c-{}", root, spec.shape.memory_mib, spec.shape.cpus,
                                accel_name(spec.shape.accel))};
  ASSIGN(const FileLock lock, FileLock::acquire(paths.folder + ".lock"));
  KnownDigests known = KnownDigests::load(root + "/known-digests");
  ASSIGN(const std::string inputs, boot_inputs(spec, known));
  auto boot = open_verified(spec, inputs, paths, known);
  if (!boot) {
    if (boot.error().code != Code::kNotFound)
      progress.step(fmt::format("discarding the boot state: {}", boot.error().message));
    TRY(make(spec, inputs, paths, known, progress));
    boot = open_verified(spec, inputs, paths, known);
    if (!boot) return fail(std::move(boot.error()).while_doing("the boot state just made"));
  }
  TRY(known.save());
  log::trace("boot state verified");
  return boot;
}

Status discard_boot_states(const Home& home) {
  ASSIGN(const std::string root, home.boot_dir());
  std::error_code error;
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(root, error))
    if (entry.is_directory()) folders.push_back(entry.path());
  for (const std::string& folder : folders) {
    const std::string name =
        folder.ends_with(".new") ? folder.substr(0, folder.size() - 4) : folder;
    ASSIGN(const FileLock lock, FileLock::acquire(name + ".lock"));
    TRY(remove_tree(folder));
  }
  return {};
}

}  // namespace sandbox
