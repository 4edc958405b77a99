#pragma once
// Starting helper processes with an exact set of descriptors, and waiting for programs.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

struct SpawnSpec {
  std::vector<std::string> argv;  // argv[0] is the path to execute
  std::vector<std::pair<int, int>>
      fds;  // {ours, number in the child}; everything else is closed. 0-2: /dev/null unless named
  std::optional<std::vector<std::string>> env;  // "K=V"; nullopt: ours
  std::string cwd = {};                         // empty: ours
  bool die_with_parent =
      true;  // PR_SET_PDEATHSIG SIGKILL: the child ends when the spawning *thread* ends
  bool new_session = true;  // setsid: terminal signals do not reach helpers
};

struct Child {
  pid_t pid = -1;
  Fd pidfd;  // readable when it has ended
};

// Fails with the exec error of the child (reported over a pipe), so a missing binary is an error
// here and not an exit 127.
Result<Child> spawn(const SpawnSpec& spec);

// Waits for its end and reaps it; the wait status, or -1 when it was reaped already.
int wait_for(const Child& child);

// SIGKILL by the descriptor, which can mean no other process. All that a confined parent may do.
void kill_now(const Fd& pidfd);

// "exit 3", "killed by signal 9 (Killed)"
std::string describe_wait_status(int wait_status);

struct Output {
  int exit_code = -1;  // 128+n when killed by signal n
  std::string out;
  std::string err;
};
// Runs to the end with stdin from /dev/null; each stream limited to `limit` bytes (more is an
// error).
Result<Output> run_program(const std::vector<std::string>& argv, size_t limit = 16U << 20);

// Where a sibling program is: beside the running executable, in ../libexec/sandbox, or in $PATH.
Result<std::string> find_sibling(std::string_view name);
// In $PATH, plus the sbin folders that a plain user's PATH lacks.
std::optional<std::string> find_in_path(std::string_view name);

}  // namespace sandbox
