#pragma once
// One sandbox's life: start everything, forward, watch, end closed.
//
// Start, in the order that costs least (QEMU takes longest, so it is first and everything else
// happens while it starts):
//   spawn QEMU → recorder, gateway, files → sentry's orders into the port → load the boot state →
//   the guest runs → the control socket is answered → the supervisor confines itself.
// End: whatever happens to any part, all of it ends. QEMU is killed first, so nothing of the guest
// runs while the rest goes; the recorder goes last and closes the log.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/record_sink.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "machine/console.h"
#include "machine/vmm.h"
#include "supervisor/control.h"
#include "supervisor/control_server.h"
#include "supervisor/gateway_link.h"
#include "supervisor/guest_link.h"
#include "supervisor/helper.h"
#include "supervisor/spec.h"

namespace sandbox {

// Taken over from the command line.
struct SupervisorFds {
  Fd client;
  Fd lock;
  Fd boot_ram;
  Fd boot_state;
  Fd base_disk;
  Fd control;
  std::vector<Fd> published;
};

class Supervisor {
 public:
  static Result<std::unique_ptr<Supervisor>> create(SandboxSpec spec, SupervisorFds fds);
  ~Supervisor();

  // Returns when the sandbox has ended; the error is why, where it was not the client's wish.
  Status run();

 private:
  explicit Supervisor(SandboxSpec spec) : spec_(std::move(spec)) {}

  Status start(SupervisorFds fds);
  Status start_helpers(Fd gateway_wire, Fd files_wire);
  Status start_guest_link(Fd ctl, Fd client);
  Status send_orders();
  Status watch_everything();
  Status watch_console(Fd console);
  Status start_control(Fd client, std::vector<Fd> published);
  Status confine();
  void watch_resolvers();
  void keep_clock();
  void machine_ended();
  bool read_console();
  void note(std::string_view text);

  void end_because(std::optional<Error> why);  // nullopt: as wished
  void shut_down();
  Status write_run_record(std::string_view state, const std::optional<Error>& why);

  SandboxSpec spec_;
  Fd lock_;
  std::unique_ptr<EventLoop> loop_;
  std::optional<Helper> recorder_;
  std::optional<Helper> gateway_;
  std::optional<Helper> files_;
  std::unique_ptr<Vmm> vmm_;
  std::optional<ConsoleLog> console_;
  Fd console_fd_;
  std::unique_ptr<audit::RecordSink> records_;
  std::unique_ptr<GuestLink> guest_;
  std::unique_ptr<GatewayLink> gateway_link_;
  std::unique_ptr<ControlServer> control_server_;
  std::unique_ptr<Control> control_;
  std::array<uint8_t, 6> mac_{};
  std::vector<std::string> resolvers_;
  int64_t created_ns_ = 0;
  std::optional<Error> failure_;
  bool ending_ = false;
};

}  // namespace sandbox
