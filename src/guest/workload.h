#pragma once
// The namespaces the workload lives in, and how a program gets into them.
//
// Guest root is hostile, so nothing of sentry may be visible or reachable there: one pid, mount,
// uts and cgroup namespace for all commands of the sandbox, held together by a pid 1 of its own
// that only reaps. A command is started in two steps:
//
//   sentry ── fork ──> entrant ── clone(CLONE_PARENT) ──> command
//
//   The *entrant* is invisible to the workload (it stays in sentry's pid namespace). It joins the
//   command's cgroup, the namespaces, takes the standard streams, closes every other descriptor and
//   gives up what the profile does not grant; then it makes the command and ends. The *command* is
//   born inside with nothing worth stealing, so a tracer inside wins nothing by being early. Its
//   parent is sentry, which therefore reaps it itself and learns the exact status.
//
// Both report over a close-on-exec pipe: the pid, then either an error or, by closing, that execve
// succeeded.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "channel/messages.h"
#include "guest/accounts.h"
#include "guest/boot.h"

namespace sandbox::guest {

// What the pipe carries; written whole, smaller than PIPE_BUF.
struct LaunchReport {
  enum class Kind : int32_t { kPid, kEnterFailed, kIdentityFailed, kDirectoryFailed, kExecFailed };
  Kind kind = Kind::kPid;
  int32_t value = 0;  // kPid: the pid in sentry's namespace; else errno
};

struct Launch {
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::vector<std::string> candidates;  // paths to try for argv[0], in order
  std::string cwd;
  Identity identity;
  bool tty = false;  // the three descriptors are one terminal, to become the controlling one
  int stdio[3] = {-1, -1, -1};  // borrowed
};

struct Launched {
  pid_t entrant = -1;
  Fd reports;  // read end, non-blocking: LaunchReports until end of file
};

// A command's cgroup: killed as a whole, removed when empty.
class CommandGroup {
 public:
  static Result<CommandGroup> create(uint32_t stream);
  [[nodiscard]] const std::string& path() const { return path_; }
  void kill() const;
  void terminate() const;  // SIGTERM to each process in it
  [[nodiscard]] bool populated() const;
  [[nodiscard]] bool remove() const;  // false: still in use

 private:
  explicit CommandGroup(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

class Workload {
 public:
  // Makes the namespaces over the root mounted at kNewRoot and starts their pid 1.
  static Result<Workload> create(channel::Profile profile);

  // Forks the entrant.
  [[nodiscard]] Result<Launched> launch(const Launch& launch, const CommandGroup& group) const;

  [[nodiscard]] pid_t init() const { return init_; }
  void kill_all() const;  // with pid 1: the end of the workload

 private:
  Workload() = default;
  channel::Profile profile_ = channel::Profile::kDev;
  pid_t init_ = -1;
  Fd pid_namespace_;
  Fd mount_namespace_;
  Fd uts_namespace_;
  Fd cgroup_namespace_;
};

}  // namespace sandbox::guest
