#pragma once
// The control messages as types. encode() gives the payload of the frame of the same name;
// decode_X() is its inverse and refuses everything else: a wrong type, a missing, unknown or
// repeated key, a value out of range, bytes left over.
//
// Strings are byte strings: paths, arguments and variables of Linux need not be UTF-8. Where a
// string becomes a C string (paths, arguments) a zero byte inside is refused while decoding.
// Whatever comes from the guest must be escaped before it reaches a terminal.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ip.h"
#include "base/result.h"
#include "channel/protocol.h"

namespace sandbox::channel {

// Where the guest has the host's certificate authorities, and nothing else, when it is given them.
inline constexpr const char* kHostRootsPath = "/etc/ssl/host-roots.pem";

enum class Profile : uint8_t {
  kDev =
      0,  // uid 1000, sudo without a password; root inside lacks what reaches beyond the workload
  kHardened = 1,    // no capability for anyone, no_new_privs
  kPrivileged = 2,  // nested containers: everything but modules, raw I/O and reboot
};

struct Hello {
  uint32_t version = kProtocolVersion;
  std::string sentry;  // version of the build
  std::string kernel;  // uname -r
};

struct Network {
  std::array<uint8_t, 6> mac{};
  Ipv4 address;
  uint8_t prefix = 29;
  Ipv4 gateway;
  Ipv4 dns;
  uint32_t mtu = 1500;  // 576..65535
};

// A shared host path. `id` is the number in docs/processes.md, 1..65535.
struct Share {
  uint32_t id = 0;
  std::string path;  // absolute, in the guest
  bool read_only = false;
  bool single_file = false;
};

// A symbolic link made where nothing stands yet: {"/workspace", "/home/u/project"}.
struct Link {
  std::string path;
  std::string target;
};

// The account that commands run as when neither image nor caller names one. Made when the image has
// nobody with this uid; an image's own user of that uid is kept as it is.
struct Account {
  std::string name = "agent";
  uint32_t uid = 1000;
  uint32_t gid = 1000;
  std::string home = "/home/agent";
};

struct ResumeRequest {
  std::array<uint8_t, 32> entropy{};  // fresh for every start
  uint64_t wall_ns = 0;               // nanoseconds since the epoch, taken as late as possible
  uint64_t nonce = 0;                 // comes back in Ready
  std::string hostname;               // a single label
  std::optional<Network> network;
  std::string disk = "/dev/vda";  // the root file system, ext4
  uint64_t disk_bytes = 0;        // grow the file system to this size; 0: leave it
  std::vector<Share> shares;
  std::vector<Link> links;
  std::optional<Account> account;
  Profile profile = Profile::kDev;
  std::string
      host_roots;  // PEM: certificate authorities to trust besides the image's; may be empty
};

struct Ready {
  uint64_t nonce = 0;
  std::vector<std::string>
      warnings;  // sentences, things that went wrong without making the sandbox unusable
};

struct ErrorReport {
  std::string text;
};

struct Clock {
  uint64_t wall_ns = 0;
};

struct Shutdown {
  uint32_t grace_ms = 2000;  // between TERM and KILL
};

struct ExecRequest {
  std::vector<std::string> argv;  // argv[0] is looked up in the PATH of env when it has no slash
  std::vector<std::string>
      env;  // "K=V"; sentry adds PATH, HOME, USER and, with a tty, TERM where they are missing
  std::string cwd = "/";  // absolute
  std::string
      user;  // as in an image's USER: name, uid, name:group, uid:gid; empty: the account's uid
  bool tty = false;  // stdout carries everything, there is no stderr
  WindowSize size;
  bool detached = false;  // stdio is /dev/null; kReset leaves it running
};

struct Exit {
  uint8_t code = 0;    // what a shell would call $?: 0-255, 128+n when killed by signal n, 126 and
                       // 127 when it could not start
  uint8_t signal = 0;  // 0: it ended by itself
  std::string error;   // why it could not start, for people; empty otherwise
};

Bytes encode(const Hello&);
Bytes encode(const ResumeRequest&);
Bytes encode(const Ready&);
Bytes encode(const ErrorReport&);
Bytes encode(const Clock&);
Bytes encode(const Shutdown&);
Bytes encode(const ExecRequest&);
Bytes encode(const Exit&);

Result<Hello> decode_hello(ByteView payload);
Result<ResumeRequest> decode_resume(ByteView payload);
Result<Ready> decode_ready(ByteView payload);
Result<ErrorReport> decode_error(ByteView payload);
Result<Clock> decode_clock(ByteView payload);
Result<Shutdown> decode_shutdown(ByteView payload);
Result<ExecRequest> decode_exec(ByteView payload);
Result<Exit> decode_exit(ByteView payload);

// A request that does not fit one frame (arguments and variables above 1 MiB) is an error for the
// caller, not for the channel.
Status check_size(const Bytes& payload);

}  // namespace sandbox::channel
