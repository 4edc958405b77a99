// A start without a boot state: the peer of the warm start in bench/start.py.
//
//   cold_start IMAGE     boots, runs a command, and prints "ready" at the command's first byte
//
// The machine, its kernel, its disk and its first orders are those of `sandbox run IMAGE`. Left out
// are the helper processes and the workspace, which could only make it slower: the ratio errs
// against us.

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket.h"
#include "channel/messages.h"
#include "channel/protocol.h"
#include "channel/stream.h"
#include "image/store.h"
#include "machine/accel.h"
#include "machine/disk.h"
#include "machine/initramfs.h"
#include "machine/kernel.h"
#include "machine/vmm.h"
#include "store/home.h"

namespace sandbox {
namespace {

constexpr Duration kPatience = 120s;

// Our ends of the wires. The console must be drained, or the guest waits for it.
struct Ends {
  Fd network, ctl, fs, console;
};

Result<std::pair<Ends, Wires>> make_wires() {
  Ends ours;
  Wires theirs;
  for (const auto& [near_end, far_end] :
       {std::pair{&ours.network, &theirs.network}, std::pair{&ours.ctl, &theirs.ctl},
        std::pair{&ours.fs, &theirs.fs}}) {
    ASSIGN(auto pair, socket_pair(SocketKind::kStream));
    *near_end = std::move(pair.first);
    *far_end = std::move(pair.second);
  }
  int console[2];
  if (::pipe2(console, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  ours.console = Fd(console[0]);
  theirs.console = Fd(console[1]);
  TRY(set_nonblocking(ours.console.get(), true));
  return std::pair{std::move(ours), std::move(theirs)};
}

class Conversation {
 public:
  explicit Conversation(Ends ends) : ends_(std::move(ends)) {}

  Status send(ByteView bytes) { return write_all(ends_.ctl.get(), as_text(bytes)); }

  // Blocks until the guest has said something; drains the console meanwhile.
  Result<Bytes> hear() {
    const Instant deadline = monotonic_now() + kPatience;
    while (monotonic_now() < deadline) {
      pollfd watch[2] = {{ends_.ctl.get(), POLLIN, 0}, {ends_.console.get(), POLLIN, 0}};
      if (::poll(watch, 2, 1000) <= 0) continue;
      std::array<uint8_t, 65536> buffer;
      if (watch[1].revents != 0)
        while (::read(ends_.console.get(), buffer.data(), buffer.size()) > 0) continue;
      if (watch[0].revents == 0) continue;
      const ssize_t n = ::recv(ends_.ctl.get(), buffer.data(), buffer.size(), 0);
      if (n <= 0) return fail(Code::kUnavailable, "the machine ended");
      return Bytes(buffer.begin(), buffer.begin() + n);
    }
    return fail(Code::kUnavailable, "the guest said nothing");
  }

  Status wait_for(channel::FrameType wanted) {
    while (true) {
      ASSIGN(const auto frame, decoder_.next());
      if (frame && frame->type == wanted) return {};
      if (frame && frame->type == channel::FrameType::kError)
        return fail(Code::kUnavailable, "sentry reported an error");
      if (frame) continue;
      ASSIGN(const Bytes bytes, hear());
      decoder_.feed(bytes);
    }
  }

 private:
  Ends ends_;
  channel::FrameDecoder decoder_;
};

Result<Bytes> first_orders() {
  channel::ResumeRequest orders;
  if (::getrandom(orders.entropy.data(), orders.entropy.size(), 0) !=
      static_cast<ssize_t>(orders.entropy.size()))
    return fail_errno(errno, "getrandom");
  orders.hostname = "cold";
  channel::Network net;
  net.mac = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
  net.address = Ipv4{0xC0000002};  // 192.0.0.2, .1: supervisor/network.h
  net.gateway = net.dns = Ipv4{0xC0000001};
  orders.network = net;
  orders.wall_ns = static_cast<uint64_t>(wall_now_ns());
  orders.account = channel::Account{};
  Bytes out;
  channel::append_frame(out, {0, channel::FrameType::kResume, 0, channel::encode(orders)});
  return out;
}

Status run_command(Conversation& guest) {
  channel::ExecRequest request;
  request.argv = {"echo", "ready"};
  ASSIGN(auto client, channel::ExecClient::open(request));
  TRY(guest.send(client.pending()));
  client.sent(client.pending().size());
  while (true) {
    ASSIGN(const Bytes bytes, guest.hear());
    ASSIGN(const auto events, client.feed(bytes));
    if (events.output.empty() && !events.exit) continue;
    if (events.output.empty()) return fail(Code::kUnavailable, "the command ended without output");
    std::puts("ready");
    std::fflush(stdout);
    return {};
  }
}

struct Prepared {
  Qemu qemu;
  ColdBoot boot;
  Fd base_disk;
};

Result<Prepared> prepare(std::string_view image_name) {
  NoProgress progress;
  Prepared out;
  ASSIGN(const Home home, Home::open());
  ASSIGN(ImageStore images, ImageStore::open(home));
  ASSIGN(const Image image, images.ensure(image_name, progress));
  ASSIGN(out.base_disk, ImageStore::open_base(image));
  ASSIGN(out.boot.kernel, installed_kernel(home));
  ASSIGN(const std::string sentry, find_sibling("sandbox-sentry"));
  ASSIGN(out.boot.initramfs, build_initramfs(out.boot.kernel, sentry));
  ASSIGN(out.qemu, find_qemu());
  return out;
}

Status boot_and_run(Prepared prepared, const std::string& overlay_path) {
  ASSIGN(auto wires, make_wires());
  ASSIGN(Fd overlay, create_overlay(overlay_path));
  wires.second.disks.push_back({std::move(overlay), std::move(prepared.base_disk), false});
  MachineShape shape;
  shape.accel = choose_accel().accel;
  ASSIGN(const auto vmm, Vmm::cold(prepared.qemu, prepared.boot, shape, std::move(wires.second)));
  TRY(vmm->load());
  Conversation guest(std::move(wires.first));
  TRY(guest.wait_for(channel::FrameType::kHello));
  ASSIGN(const Bytes orders, first_orders());
  TRY(guest.send(orders));
  TRY(guest.wait_for(channel::FrameType::kReady));
  return run_command(guest);
}

Status cold_start(std::string_view image_name) {
  ASSIGN(Prepared prepared, prepare(image_name));
  std::string folder = (std::filesystem::temp_directory_path() / "cold-start-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return fail_errno(errno, "mkdtemp");
  Status ran = boot_and_run(std::move(prepared), folder + "/disk.qcow2");
  (void)remove_tree(folder);
  return ran;
}

}  // namespace
}  // namespace sandbox

int main(int argc, char** argv) {
  sandbox::log::set_program("cold_start");
  if (argc != 2) {
    sandbox::log::line("usage: cold_start IMAGE");
    return 2;
  }
  const sandbox::Status ran = sandbox::cold_start(argv[1]);
  if (!ran) {
    sandbox::log::line(ran.error().message);
    return 1;
  }
  return 0;
}
