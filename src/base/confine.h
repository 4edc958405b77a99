#pragma once
// How a host process gives up what it does not need, after start and before it reads a byte from
// the guest.
//
// Example, the order matters (seccomp last, since it forbids the calls that set up the rest):
//   TRY(confine::drop_privileges());                      // no capabilities, no_new_privs
//   TRY(confine::landlock_none());                        // no file rights at all
//   TRY(confine::seccomp_allow({"read", "write", ...}));  // anything else kills the process
//
// A worked list of calls stands beside the code that needs them, in the process's main.cc.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sandbox::confine {

// Drops every capability from all sets, empties the bounding set where permitted, sets
// no_new_privs, makes the process undumpable and, for helpers, ends it with its parent.
enum class Parent { kEndsUs, kMayDie };
Status drop_privileges(Parent parent = Parent::kEndsUs);

struct PathRight {
  std::string path;
  bool writable = false;
};
// Landlock: file access to nothing but `allowed` and what lies beneath (and, from ABI 4 of the
// kernel, no TCP bind or connect when network is false). Where the kernel has no Landlock the call
// fails with kUnavailable; the caller decides.
Status landlock_only(const std::vector<PathRight>& allowed, bool network);
inline Status landlock_none(bool network) {
  return landlock_only({}, network);
}
int landlock_abi();  // 0: not available

// Installs an allow list by system call name; anything else kills the process. Names unknown to
// this architecture are ignored. Calls that every process of ours needs (memory that is not
// executable, futex, clock, exit, signals to itself) are included, and "fcntl" stands for reading
// and setting flags and for duplicates. In sanitizer builds the calls of the sanitizer run time are
// added, executable memory among them.
Status seccomp_allow(const std::vector<std::string_view>& names);

// What socket() may be asked for; use together with "socket" absent from the list. The type is
// meant with and without SOCK_CLOEXEC and SOCK_NONBLOCK. The protocol counts, since naming another
// (SCTP, MPTCP) makes the kernel load and run code that nobody here needs.
struct SocketRule {
  int family;
  int type;
  int protocol = 0;
};
Status seccomp_allow(const std::vector<std::string_view>& names,
                     const std::vector<SocketRule>& sockets);

// RLIMIT_NOFILE soft to hard. Returns the limit now in force.
size_t raise_descriptor_limit();
// No core files: they would hold guest bytes and, in the broker, secrets.
void forbid_core_files();

}  // namespace sandbox::confine
