#pragma once
// One running QEMU: started confined, restored from a boot state or booted cold, watched, ended.
//
// A start, in the order that costs least; between the calls the caller does other work while QEMU
// starts up:
//   ASSIGN(auto vmm, Vmm::restore(qemu, boot, std::move(wires)));  // about 5 ms
//   ... start the helpers, write sentry's first orders to the ctl wire (they wait in it) ...
//   TRY(vmm->load());                                              // blocks until the guest runs
// Afterwards watch pidfd() (readable: it ended) and qmp_fd() (readable: call read_events()).
//
// It ends with the process that spawned it, however that one dies: by PDEATHSIG (so spawn from a
// thread that lives as long as the sandbox) and by end of file on the launcher's control socket.
// See launcher.cc for how it is confined.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "machine/boot_state.h"
#include "machine/kernel.h"
#include "machine/qemu.h"
#include "machine/qmp.h"
#include "machine/shape.h"

namespace sandbox {

struct DiskFds {
  Fd overlay;            // qcow2, from create_overlay or open_overlay; only for this QEMU
  Fd base;               // raw, read-only
  bool durable = false;  // pass the guest's flushes on to the host's disk; false for what dies with
                         // the sandbox
};

// QEMU's ends. All are taken over and closed here once QEMU has them.
struct Wires {
  Fd network;                  // SOCK_STREAM: frames with a 4-byte big-endian length
  Fd ctl;                      // SOCK_STREAM: port sandbox.ctl.0
  Fd fs;                       // SOCK_STREAM: port sandbox.fs.0
  Fd console;                  // a pipe: what ttyS0 prints; see console.h
  std::vector<DiskFds> disks;  // slot 0 first, at most kDiskSlots; the slots left over read as
                               // zeros and forget writes
};

// A boot without a boot state.
struct ColdBoot {
  Kernel kernel;
  Bytes initramfs;  // from build_initramfs
};

class Vmm {
 public:
  static Result<std::unique_ptr<Vmm>> restore(const Qemu& qemu, const BootState& boot, Wires wires);
  static Result<std::unique_ptr<Vmm>> cold(const Qemu& qemu, const ColdBoot& boot,
                                           const MachineShape& shape, Wires wires);
  ~Vmm();  // kills it and waits
  Vmm(const Vmm&) = delete;
  Vmm& operator=(const Vmm&) = delete;

  // Ends when the guest executes its first instruction. Errors are diagnoses (diagnosis.h).
  Status load(Duration at_most = 60s);

  [[nodiscard]] pid_t pid() const { return child_pid_; }  // of the launcher
  [[nodiscard]] int pidfd() const {
    return child_pidfd_.get();
  }  // readable once QEMU and its launcher have ended
  [[nodiscard]] int qmp_fd() const { return qmp_.fd(); }

  // Takes in what QMP has to say without blocking. False once QEMU has closed it: stop watching.
  bool read_events();
  // For pause, balloon and the like; JSON text in and out. Blocks, at most `at_most`.
  Result<std::string> command(std::string_view name, std::string_view arguments_json = "{}",
                              Duration at_most = 10s);
  Status pause() { return command_only("stop"); }
  Status resume() { return command_only("cont"); }

  // Saves device state to `state` and guest memory to `ram` (holes kept); the guest is stopped
  // afterwards and stays so.
  Status save(int state, int ram);

  void kill();                  // SIGKILL to all of it; does not wait
  bool wait(Duration at_most);  // true when it has ended
  // After the end. How: orderly (the guest powered off), or the diagnosis. `console_tail` helps to
  // name a guest panic.
  struct End {
    bool orderly = false;
    Error error;  // when not orderly
  };
  End end(std::string_view console_tail);

 private:
  struct Start;
  Vmm() = default;
  static Result<std::unique_ptr<Vmm>> spawn(const Qemu& qemu, const MachineShape& shape,
                                            Start start, Wires wires);
  Status command_only(std::string_view name);
  Status restore_state(Instant deadline);
  Status unmount_host(Instant deadline);
  Error failure(std::string_view doing, std::optional<Error> seen);
  void note_events();
  void drain_stderr();

  pid_t child_pid_ = -1;
  Fd child_pidfd_;
  Fd launcher_;  // control socket of the launcher: closed = kill
  Fd stderr_;    // QEMU's stderr; what does not fit into the pipe is dropped by QEMU's non-blocking
                 // end
  std::string stderr_text_;
  QmpClient qmp_;
  Fd ram_;       // guest memory, sealed to its size
  Fd boot_ram_;  // what it is filled from, while copying_
  Fd state_;     // to be loaded; not set after a cold start
  std::thread copying_;
  Status copied_;
  std::optional<int> wait_status_;
  std::string shutdown_reason_;
  uint64_t memory_bytes_ = 0;
};

}  // namespace sandbox
