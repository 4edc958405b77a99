// Real machines: made once, restored, attacked, killed. Needs QEMU and an installed guest kernel
// (SANDBOX_HOME, else ~/.sandbox), and is skipped without; one boot and about a dozen restores,
// less than a minute under emulation.

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "channel/protocol.h"
#include "machine/boot_state.h"
#include "machine/disk.h"
#include "machine/initramfs.h"
#include "machine/vmm.h"

namespace sandbox {
namespace {

constexpr auto kPatience = 60s;

class RecordingProgress final : public Progress {
 public:
  void step(std::string_view what) override { steps += std::string(what) + "\n"; }
  void advance(uint64_t, uint64_t) override {}
  std::string steps;
};

struct Ends {
  Wires wires;
  Fd network, ctl, fs, console;
};

Ends make_ends() {
  Ends ends;
  const auto join = [](Fd& ours, Fd& theirs) {
    auto pair = socket_pair(SocketKind::kStream);
    ours = std::move(pair->first);
    theirs = std::move(pair->second);
  };
  join(ends.network, ends.wires.network);
  join(ends.ctl, ends.wires.ctl);
  join(ends.fs, ends.wires.fs);
  int console[2];
  EXPECT_EQ(::pipe2(console, O_CLOEXEC), 0);
  ends.console = Fd(console[0]);
  ends.wires.console = Fd(console[1]);
  return ends;
}

void ping(const Fd& ctl, std::string_view payload) {
  Bytes out;
  channel::append_frame(out, {0, channel::FrameType::kPing, 0, as_bytes(payload)});
  ASSERT_TRUE(write_all(ctl.get(), as_text(out)));
}

// The payload of the next frame, or why there is none.
std::string answer(const Fd& ctl) {
  channel::FrameDecoder decoder;
  const Instant deadline = monotonic_now() + kPatience;
  while (monotonic_now() < deadline) {
    pollfd watch{ctl.get(), POLLIN, 0};
    if (::poll(&watch, 1, 1000) <= 0) continue;
    uint8_t byte = 0;
    if (::read(ctl.get(), &byte, 1) != 1) return "<closed>";
    decoder.feed({&byte, 1});
    const auto frame = decoder.next();
    if (!frame) return "<" + frame.error().message + ">";
    if (*frame) return std::string(as_text((*frame)->payload));
  }
  return "<silence>";
}

// QEMU and launchers below a process of ours, by walking /proc.
std::vector<pid_t> descendants(pid_t root) {
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto children = read_file(fmt::format("/proc/{0}/task/{0}/children", found[i]), 65536);
    if (!children) continue;
    for (const std::string_view word : split(*children, ' '))
      if (const auto pid = parse_decimal(trim(word))) found.push_back(static_cast<pid_t>(*pid));
  }
  return found;
}

bool alive(pid_t pid) {
  const auto stat = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  if (!stat) return false;
  const size_t end = stat->rfind(')');
  return end != std::string::npos && stat->size() > end + 2 && (*stat)[end + 2] != 'Z';
}

bool all_gone(const std::vector<pid_t>& pids) {
  for (int i = 0; i < 500; ++i) {
    if (std::none_of(pids.begin(), pids.end(), alive)) return true;
    ::usleep(10'000);
  }
  return false;
}

class MachineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto home = Home::open();
    const auto kernel =
        home ? installed_kernel(*home) : Result<Kernel>(fail(Code::kNotFound, "no home"));
    const auto qemu = find_qemu();
    if (!kernel || !qemu) return;
    spec_ = new BootSpec{
        *kernel, std::string(SANDBOX_BIN) + "/sandbox-sentry", *qemu, {512, 1, Accel::kTcg}};
    folder_ = new std::string(testing::TempDir() + "machine_XXXXXX");
    ASSERT_NE(::mkdtemp(folder_->data()), nullptr);
  }
  static void TearDownTestSuite() {
    if (folder_ != nullptr) (void)remove_tree(*folder_);
    delete folder_;
    delete spec_;
  }
  void SetUp() override {
    if (spec_ == nullptr) GTEST_SKIP() << "needs QEMU and: sandbox kernel install";
  }

  static Home home() { return *Home::open_at(*folder_ + "/home"); }
  static std::string shape_folder() { return *home().boot_dir() + "/512m-1c-tcg"; }
  static BootState boot_state(Progress& progress) {
    auto state = ensure_boot_state(home(), *spec_, progress);
    EXPECT_TRUE(state) << state.error().message;
    return state ? std::move(*state) : BootState{};
  }
  static std::string disk_path() {
    static int count = 0;
    return fmt::format("{}/disk{}", *folder_, ++count);
  }
  struct Running {
    std::unique_ptr<Vmm> vmm;
    Ends ends;
  };
  // Up to the first answer of sentry.
  static Running start(const BootState& boot, std::vector<DiskFds> disks = {}) {
    Running running{nullptr, make_ends()};
    running.ends.wires.disks = std::move(disks);
    ping(running.ends.ctl, "first");
    auto vmm = Vmm::restore(spec_->qemu, boot, std::move(running.ends.wires));
    EXPECT_TRUE(vmm) << vmm.error().message;
    if (!vmm) return running;
    const Status loaded = (*vmm)->load(kPatience);
    EXPECT_TRUE(loaded) << loaded.error().message;
    if (!loaded) return running;
    EXPECT_EQ(answer(running.ends.ctl), "first");
    running.vmm = std::move(*vmm);
    return running;
  }
  static pid_t qemu_of(const Vmm& vmm) { return descendants(vmm.pid()).back(); }

  static BootSpec* spec_;
  static std::string* folder_;
};
BootSpec* MachineTest::spec_ = nullptr;
std::string* MachineTest::folder_ = nullptr;

TEST_F(MachineTest, ABootStateIsMadeOnceAndThenRestored) {
  RecordingProgress first;
  const BootState made = boot_state(first);
  EXPECT_NE(first.steps.find("booting"), std::string::npos);
  RecordingProgress second;
  const BootState found = boot_state(second);
  EXPECT_EQ(second.steps, "");
  EXPECT_EQ(made.key, found.key);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(start(found).vmm);
}

// A frame of QEMU's own making would reach the gateway under an address that is not the guest's.
TEST_F(MachineTest, OnlyTheGuestSpeaksOnTheNetworkWire) {
  NoProgress progress;
  const Running running = start(boot_state(progress));
  ASSERT_TRUE(running.vmm);
  std::array<uint8_t, 4 + 60> frame{};
  const int wire = running.ends.network.get();
  EXPECT_EQ(::recv(wire, frame.data(), frame.size(), MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  // The control: told to, QEMU does announce the machine, and it would have been seen.
  ASSERT_TRUE(
      running.vmm->command("announce-self", R"({"initial":50,"max":50,"rounds":1,"step":50})"));
  pollfd watch{wire, POLLIN, 0};
  ASSERT_EQ(::poll(&watch, 1, 10'000), 1);
  ASSERT_EQ(::recv(wire, frame.data(), frame.size(), MSG_WAITALL),
            static_cast<ssize_t>(frame.size()));
  EXPECT_EQ(frame[4 + 12] << 8 | frame[4 + 13], 0x8035) << "the EtherType of RARP";
}

TEST_F(MachineTest, EverythingOfItIsPrivate) {
  NoProgress progress;
  (void)boot_state(progress);
  for (const char* file : {"ram", "state", "inputs", "digests"}) {
    struct stat st {};
    ASSERT_EQ(::stat((shape_folder() + "/" + file).c_str(), &st), 0) << file;
    EXPECT_EQ(st.st_mode & 077, 0U) << file;
  }
}

TEST_F(MachineTest, RunningGuestsCannotReachTheBootState) {
  NoProgress progress;
  const BootState boot = boot_state(progress);
  const auto digests = read_file(shape_folder() + "/digests");
  { const Running a = start(boot), b = start(boot); }
  ASSERT_TRUE(digests);
  RecordingProgress after;
  (void)boot_state(after);
  EXPECT_EQ(after.steps, "");
  EXPECT_EQ(*read_file(shape_folder() + "/digests"), *digests);
}

TEST_F(MachineTest, OneFlippedByteDiscardsTheStateAndSaysSo) {
  NoProgress quiet;
  for (const char* file : {"state", "ram"}) {
    (void)boot_state(quiet);
    const std::string path = shape_folder() + "/" + file;
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    {
      const auto fd = open_file(path, O_RDWR);
      ASSERT_TRUE(fd);
      const off_t at = ::lseek(fd->get(), 1000, SEEK_DATA);
      char byte = 0;
      ASSERT_EQ(::pread(fd->get(), &byte, 1, at), 1);
      byte = static_cast<char>(byte ^ 1);
      ASSERT_EQ(::pwrite(fd->get(), &byte, 1, at), 1);
    }
    RecordingProgress progress;
    const BootState again = boot_state(progress);
    EXPECT_NE(progress.steps.find("discarding the boot state: its bytes"), std::string::npos)
        << progress.steps;
    EXPECT_TRUE(start(again).vmm);
  }
}

TEST_F(MachineTest, QemuIsConfined) {
  NoProgress progress;
  const Running running = start(boot_state(progress));
  ASSERT_TRUE(running.vmm);
  const pid_t qemu = qemu_of(*running.vmm);
  const auto status = read_file(fmt::format("/proc/{}/status", qemu), 65536);
  ASSERT_TRUE(status);
  for (const char* line : {"CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
                           "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"})
    EXPECT_NE(status->find(line), std::string::npos) << line << "\n" << *status;
  const auto map = read_file("/proc/self/uid_map", 4096);
  const bool real_root = ::geteuid() == 0 && map && map->find("4294967295") != std::string::npos;
  if (real_root) {
    EXPECT_NE(status->find("Uid:\t65534\t65534"), std::string::npos);
  }
  const auto mounts = read_file(fmt::format("/proc/{}/mountinfo", qemu), 65536);
  ASSERT_TRUE(mounts);
  EXPECT_EQ(std::count(mounts->begin(), mounts->end(), '\n'), 1) << *mounts;
  for (const char* space : {"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"}) {
    const auto theirs = std::filesystem::read_symlink(fmt::format("/proc/{}/ns/{}", qemu, space));
    EXPECT_NE(theirs, std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", space)))
        << space;
  }
}

TEST_F(MachineTest, NothingOfTheHostCanBeOpenedThroughQmp) {
  NoProgress progress;
  const Running running = start(boot_state(progress));
  ASSERT_TRUE(running.vmm);
  const auto opened = running.vmm->command(
      "blockdev-add",
      R"({"driver":"file","node-name":"x","filename":"/etc/passwd","read-only":true})");
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("No such file"), std::string::npos)
      << opened.error().message;
  EXPECT_TRUE(running.vmm->command("query-status"));
}

TEST_F(MachineTest, ADiskInUseIsFoundOutBeforeTheGuestRuns) {
  NoProgress progress;
  const BootState boot = boot_state(progress);
  const std::string path = disk_path();
  std::vector<DiskFds> disks(1);
  disks[0].overlay = *create_overlay(path);
  const Running first = start(boot, std::move(disks));
  ASSERT_TRUE(first.vmm);
  Ends ends = make_ends();
  ends.wires.disks.resize(1);
  ends.wires.disks[0].overlay = *open_overlay(path);
  auto second = Vmm::restore(spec_->qemu, boot, std::move(ends.wires));
  ASSERT_TRUE(second);
  const Status loaded = (*second)->load(kPatience);
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("in use by another machine"), std::string::npos)
      << loaded.error().message;
}

TEST_F(MachineTest, KillingAnyOfItsProcessesEndsAllOfThem) {
  NoProgress progress;
  const BootState boot = boot_state(progress);
  for (size_t victim = 0; victim < 3; ++victim) {
    const Running running = start(boot);
    ASSERT_TRUE(running.vmm);
    const auto family = descendants(running.vmm->pid());
    ASSERT_EQ(family.size(), 3U) << "launcher, init, QEMU";
    ::kill(family[victim], SIGKILL);
    EXPECT_TRUE(running.vmm->wait(10s)) << victim;
    EXPECT_TRUE(all_gone({family.begin() + 1, family.end()})) << victim;
    const Vmm::End end = running.vmm->end("");
    EXPECT_FALSE(end.orderly);
    EXPECT_NE(end.error.message.find("killed"), std::string::npos) << end.error.message;
  }
}

TEST_F(MachineTest, TheDeathOfTheSupervisorEndsIt) {
  NoProgress progress;
  const BootState boot = boot_state(progress);
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t supervisor = ::fork();
  if (supervisor == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Running running = start(boot);
    const pid_t launcher = running.vmm ? running.vmm->pid() : -1;
    (void)!::write(report[1], &launcher, sizeof launcher);
    for (;;) ::pause();
  }
  pid_t launcher = -1;
  const ssize_t reported = ::read(report[0], &launcher, sizeof launcher);
  const auto family = launcher > 0 ? descendants(launcher) : std::vector<pid_t>();
  EXPECT_TRUE(std::all_of(family.begin(), family.end(), alive)) << "the control: they live";
  ::kill(supervisor, SIGKILL);
  ::waitpid(supervisor, nullptr, 0);
  EXPECT_EQ(reported, static_cast<ssize_t>(sizeof launcher));
  EXPECT_EQ(family.size(), 3U);
  EXPECT_TRUE(all_gone(family));
  ::close(report[0]);
  ::close(report[1]);
}

TEST_F(MachineTest, MoreMemoryThanTheMachineHasIsRefusedWithAHint) {
  const ColdBoot boot{spec_->kernel, {}};
  const auto vmm =
      Vmm::cold(spec_->qemu, boot, {uint64_t{64} << 20, 1, Accel::kTcg}, make_ends().wires);
  ASSERT_FALSE(vmm);
  EXPECT_EQ(vmm.error().code, Code::kLimit);
  EXPECT_FALSE(vmm.error().hint.empty());
}

TEST_F(MachineTest, AKernelThatCannotBootIsADiagnosisWithTheConsolesWords) {
  BootSpec broken = *spec_;
  broken.sentry = *folder_ + "/not-a-program";
  ASSERT_TRUE(write_file_atomic(broken.sentry, "not a program", 0755));
  RecordingProgress progress;
  const auto state = ensure_boot_state(*Home::open_at(*folder_ + "/broken"), broken, progress);
  ASSERT_FALSE(state);
  EXPECT_NE(state.error().message.find("Kernel panic"), std::string::npos) << state.error().message;
}

}  // namespace
}  // namespace sandbox
