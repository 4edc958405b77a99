// Each case forks, confines the child, and tries: a probe that succeeds unconfined must fail
// confined.
#include "base/confine.h"
#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace sandbox {
namespace {

// Wait status of a child that ran `body`; its result is the exit status.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

int open_passwd() {
  return ::open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0 ? 0 : 1;
}

TEST(Landlock, HidesEveryFileButTheNamedOnes) {
  if (confine::landlock_abi() == 0) GTEST_SKIP() << "no Landlock in this kernel";
  EXPECT_EQ(in_child(open_passwd), 0);
  const int status = in_child([] {
    if (!confine::drop_privileges() || !confine::landlock_only({{"/etc/hostname", false}}, true))
      return 2;
    const bool named = ::open("/etc/hostname", O_RDONLY | O_CLOEXEC) >= 0;
    return named && open_passwd() == 1 ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

TEST(Landlock, ReadOnlyFoldersRefuseWriting) {
  if (confine::landlock_abi() == 0) GTEST_SKIP() << "no Landlock in this kernel";
  char folder[] = "/tmp/confine_test_XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string file = std::string(folder) + "/f";
  for (const bool writable : {true, false}) {
    const int status = in_child([&] {
      if (!confine::drop_privileges() || !confine::landlock_only({{folder, writable}}, true))
        return 2;
      return ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0 ? 0 : 1;
    });
    EXPECT_EQ(WEXITSTATUS(status), writable ? 0 : 1);
  }
  ::unlink(file.c_str());
  ::rmdir(folder);
}

TEST(Seccomp, KillsAProcessThatMakesACallNotListed) {
  EXPECT_EQ(in_child([] { return ::getppid() > 0 ? 0 : 1; }), 0);
  const int status = in_child([] {
    if (!confine::drop_privileges() || !confine::seccomp_allow({})) return 2;
    return ::chroot("/") == 0 ? 0 : 1;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSYS);
}

TEST(Seccomp, AllowsOnlyTheSocketKindsNamed) {
  const auto run = [](int family, int type, int protocol = 0) {
    return in_child([=] {
      if (!confine::drop_privileges() || !confine::seccomp_allow({}, {{AF_INET, SOCK_STREAM}}))
        return 2;
      return ::socket(family, type, protocol) >= 0 ? 0 : 1;
    });
  };
  EXPECT_EQ(run(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK), 0);
  EXPECT_TRUE(WIFSIGNALED(run(AF_INET, SOCK_STREAM, IPPROTO_TCP)));  // the same by another name
  EXPECT_TRUE(WIFSIGNALED(run(AF_INET, SOCK_DGRAM)));
  EXPECT_TRUE(WIFSIGNALED(run(AF_UNIX, SOCK_STREAM)));
}

#ifndef SANDBOX_SANITIZED  // whose run time does all of this

// Exit status 0 where `attempt` got through under a filter with "fcntl" in it.
int under_filter(const std::function<bool()>& attempt) {
  return in_child([&] {
    if (!confine::drop_privileges() || !confine::seccomp_allow({"fcntl"})) return 2;
    return attempt() ? 0 : 1;
  });
}

bool ended_by_filter(int status) {
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

TEST(Seccomp, AllowsMemoryButNoNewCode) {
  const auto map = [](int protection) {
    return ::mmap(nullptr, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  const auto turn = [&](int protection) {
    return ::mprotect(map(PROT_READ | PROT_WRITE), 4096, protection) == 0;
  };
  EXPECT_EQ(under_filter([&] { return map(PROT_READ | PROT_WRITE) != MAP_FAILED; }), 0);
  EXPECT_EQ(under_filter([&] { return turn(PROT_READ); }), 0);
  EXPECT_TRUE(ended_by_filter(under_filter([&] { return map(PROT_EXEC) != MAP_FAILED; })));
  EXPECT_TRUE(ended_by_filter(under_filter([&] { return turn(PROT_READ | PROT_EXEC); })));
}

TEST(Seccomp, LetsAProcessSignalItselfAlone) {
  const auto thread_of_parent = static_cast<pid_t>(::getpid());
  const auto itself = [] { return ::raise(SIGCONT) == 0; };
  const auto parent = [=] {
    return ::syscall(SYS_tgkill, thread_of_parent, thread_of_parent, SIGCONT) == 0;
  };
  EXPECT_EQ(under_filter(itself), 0);
  EXPECT_EQ(in_child([&] { return parent() ? 0 : 1; }), 0);
  EXPECT_TRUE(ended_by_filter(under_filter(parent)));
}

TEST(Seccomp, FcntlIsFlagsAndDuplicates) {
  EXPECT_EQ(under_filter([] { return ::fcntl(0, F_DUPFD_CLOEXEC, 3) > 2; }), 0);
  EXPECT_EQ(under_filter([] { return ::fcntl(0, F_GETFL) >= 0; }), 0);
  EXPECT_TRUE(ended_by_filter(under_filter([] { return ::fcntl(0, F_SETOWN, ::getpid()) == 0; })));
  EXPECT_TRUE(ended_by_filter(under_filter([] { return ::fcntl(0, F_SETSIG, SIGCONT) == 0; })));
}

#endif

TEST(DropPrivileges, LeavesNoCapability) {
  const int status = in_child([] {
    if (!confine::drop_privileges()) return 2;
    const Fd fd(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    const auto text = read_all(fd.get(), 1 << 16);
    return text && text->find("CapEff:\t0000000000000000") != std::string::npos &&
                   text->find("NoNewPrivs:\t1") != std::string::npos
               ? 0
               : 1;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sandbox
