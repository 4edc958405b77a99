#pragma once
// What a sandbox is to be, as the command line hands it to its supervisor: JSON in a memfd,
// everything in it checked already.
//
// Descriptors of sandbox-supervisor: 3 this, 4 the client (channel frames, exec part; errors of the
// sandbox as kError on stream 0), 5 the lock of the run directory, 6 and 7 the boot state's memory
// and device state, 8 the image's disk, 9 a control connection of the client (control_messages.h),
// from 10 on the listening sockets of `publish`, in that order. The supervisor ends the sandbox
// when the client closes its end.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "channel/messages.h"
#include "machine/qemu.h"
#include "machine/shape.h"

namespace sandbox {

namespace supervisor_fd {
constexpr int kSpec = 3;
constexpr int kClient = 4;
constexpr int kLock = 5;
constexpr int kBootRam = 6;
constexpr int kBootState = 7;
constexpr int kBaseDisk = 8;
constexpr int kControl = 9;
constexpr int kFirstPublished = 10;
}  // namespace supervisor_fd

struct ShareSpec {
  std::string host_path;
  std::string guest_path;
  bool read_only = false;
  bool single_file = false;
  friend bool operator==(const ShareSpec&, const ShareSpec&) = default;
};

// The HTTP proxy that this host needs, see gateway/upstream_proxy.h.
struct ProxySpec {
  std::string host;  // as the user wrote it
  uint16_t port = 0;
  std::vector<std::string> addresses;  // of the host
  std::string authorization;           // value of Proxy-Authorization; empty: none
  std::string no_proxy;
  friend bool operator==(const ProxySpec&, const ProxySpec&) = default;
};

struct SandboxSpec {
  std::string name;
  std::string run_dir;  // exists, 0700, locked
  std::string image;    // for the record
  std::vector<std::string> command;
  Qemu qemu;
  MachineShape shape;
  std::string boot_key;
  uint64_t disk_bytes = 0;  // what the root file system may use; 0: as large as the image has it
  std::vector<std::string> allow;
  std::vector<std::string> deny;
  std::vector<ShareSpec> shares;  // share ids are their positions + 1
  std::string workspace;          // guest path that /workspace points to; empty: none
  channel::Profile profile = channel::Profile::kDev;
  bool ask = false;  // what no rule is about is asked about, over the control connection
  std::vector<uint16_t> publish;  // ports of the guest, one for each listening socket
  // Of the guest's card; throughput depends on it (docs/decisions/033-mtu.md).
  uint32_t mtu = 65520;
  std::optional<ProxySpec> proxy;
  std::string host_roots;  // PEM, for the guest to trust; may be empty
};

std::string to_json(const SandboxSpec& spec);
// The proxy in the form of the gateway's configuration.
std::string to_json(const ProxySpec& proxy);
Result<SandboxSpec> spec_from_json(std::string_view text);

}  // namespace sandbox
