// A start without a boot state, timed: the peer of the warm start in bench/start.py.
//
//   cold_start IMAGE     prints the seconds from the start of QEMU to a command's first byte
//
// The machine, its kernel, its disk and its first orders are those of `sandbox run IMAGE`. Left out
// is what a warm start has as well and what would only make this one slower: looking up image and
// kernel, making the initramfs, the helper processes, the workspace. So the ratio errs against us.

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
    if (!events.output.empty()) return {};
    if (events.exit) return fail(Code::kUnavailable, "the command ended without output");
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

Result<Duration> timed_start(Prepared prepared, const std::string& overlay_path) {
  ASSIGN(auto wires, make_wires());
  ASSIGN(Fd overlay, create_overlay(overlay_path));
  wires.second.disks.push_back({std::move(overlay), std::move(prepared.base_disk), false});
  MachineShape shape;
  shape.accel = choose_accel().accel;
  const Instant begin = monotonic_now();
  ASSIGN(const auto vmm, Vmm::cold(prepared.qemu, prepared.boot, shape, std::move(wires.second)));
  TRY(vmm->load());
  Conversation guest(std::move(wires.first));
  TRY(guest.wait_for(channel::FrameType::kHello));
  ASSIGN(const Bytes orders, first_orders());
  TRY(guest.send(orders));
  TRY(guest.wait_for(channel::FrameType::kReady));
  TRY(run_command(guest));
  return monotonic_now() - begin;
}

Result<Duration> cold_start(std::string_view image_name) {
  ASSIGN(Prepared prepared, prepare(image_name));
  std::string folder = (std::filesystem::temp_directory_path() / "cold-start-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return fail_errno(errno, "mkdtemp");
  auto took = timed_start(std::move(prepared), folder + "/disk.qcow2");
  (void)remove_tree(folder);
  return took;
}

}  // namespace
}  // namespace sandbox

int main(int argc, char** argv) {
  sandbox::log::set_program("cold_start");
  if (argc != 2) {
    sandbox::log::line("usage: cold_start IMAGE");
    return 2;
  }
  const auto took = sandbox::cold_start(argv[1]);
  if (!took) {
    sandbox::log::line(took.error().message);
    return 1;
  }
  std::printf("%.4f\n", std::chrono::duration<double>(*took).count());
  return 0;
}
