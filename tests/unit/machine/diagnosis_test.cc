#include "machine/diagnosis.h"

#include <gtest/gtest.h>

#include <csignal>

namespace sandbox {
namespace {

int exited(int code) {
  return code << 8;
}

struct Case {
  const char* what;
  MachineEvidence evidence;
  Code code;
  const char* words;
  bool hint;
};

TEST(Diagnosis, NamesTheCauseAndWhatToDo) {
  const Case cases[] = {
      {"no namespaces",
       {exited(125), "sandbox-launcher: unshare: Operation not permitted\n", {}, {}, {}},
       Code::kPermission,
       "does not let users create namespaces",
       true},
      {"no permission on kvm",
       {exited(1), "qemu: Could not access KVM kernel module: Permission denied\n", {}, {}, {}},
       Code::kPermission,
       "/dev/kvm may not be opened",
       true},
      {"memory",
       {exited(1), "qemu: cannot set up guest memory 'mem': Cannot allocate memory\n", {}, {}, {}},
       Code::kLimit,
       "not enough memory",
       true},
      {"locked disk",
       {exited(1),
        "Failed to get \"write\" lock\nIs another process using the image?\n",
        {},
        {},
        {}},
       Code::kExists,
       "in use by another machine",
       true},
      {"bad state",
       {exited(1),
        "qemu: Not a migration stream\nqemu: load of migration failed: Invalid argument\n",
        {},
        {},
        {}},
       Code::kTampered,
       "boot state does not load",
       true},
      {"forbidden system call",
       {exited(128 + SIGSYS), "", {}, {}, {}},
       Code::kInternal,
       "forbids",
       false},
      {"killed", {exited(128 + SIGKILL), "", {}, {}, {}}, Code::kIo, "was killed", true},
      {"panic",
       {exited(0),
        "",
        "x\n[1.0] Kernel panic - not syncing: Attempted to kill init!\nmore",
        "guest-reset",
        {}},
       Code::kUnavailable,
       "Kernel panic - not syncing: Attempted to kill init!",
       false},
      {"reset", {exited(0), "", "", "guest-reset", {}}, Code::kUnavailable, "reset itself", false},
      {"unknown words",
       {exited(1), "a\nb\nc\nqemu: strange\n", {}, {}, {}},
       Code::kUnavailable,
       "b | c | qemu: strange",
       false},
      {"only the caller knows",
       {std::nullopt, "", {}, {}, Error{Code::kUnavailable, "QEMU does not answer", {}}},
       Code::kUnavailable,
       "QEMU does not answer",
       false},
      {"nothing but an exit", {exited(7), "", {}, {}, {}}, Code::kUnavailable, "exit 7", false},
  };
  for (const Case& c : cases) {
    const Error error = diagnose("starting", c.evidence);
    EXPECT_EQ(error.code, c.code) << c.what;
    EXPECT_NE(error.message.find(c.words), std::string::npos) << c.what << ": " << error.message;
    EXPECT_TRUE(error.message.starts_with("starting: ")) << c.what;
    EXPECT_EQ(!error.hint.empty(), c.hint) << c.what;
  }
}

// No setting helps there: the kernel refuses user namespaces to a process whose root is not its
// mount namespace's.
TEST(Diagnosis, NamespacesThatAreRefusedMayMeanAChroot) {
  const Error error =
      diagnose("starting",
               {exited(125), "sandbox-launcher: unshare: Operation not permitted\n", {}, {}, {}});
  EXPECT_NE(error.hint.find("chroot"), std::string::npos) << error.hint;
}

TEST(Diagnosis, GuestBytesCannotDriveTheTerminal) {
  const Error error = diagnose("running", {exited(0), "", "Kernel panic \x1b[2J\n", "", {}});
  EXPECT_EQ(error.message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace sandbox
