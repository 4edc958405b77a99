#include "guest/exit_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>

namespace sandbox::guest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = LaunchReport::Kind;

TEST(ExitFromWait, KeepsEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const channel::Exit exit = exit_from_wait(W_EXITCODE(code, 0));
    EXPECT_EQ(exit.code, code);
    EXPECT_EQ(exit.signal, 0);
  }
}

TEST(ExitFromWait, AddsASignalTo128) {
  for (const int signal : {1, 2, 9, 15, 64}) {
    EXPECT_EQ(exit_from_wait(W_EXITCODE(0, signal)).code, 128 + signal);
    EXPECT_EQ(exit_from_wait(W_EXITCODE(0, signal)).signal, signal);
  }
  EXPECT_EQ(exit_from_wait(W_EXITCODE(0, 11) | WCOREFLAG).code, 139);
}

TEST(ExitFromFailure, TellsMissingFromUnrunnable) {
  struct Case {
    const char* program;
    Kind kind;
    int number;
    int code;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"nope", Kind::kExecFailed, ENOENT, 127, "command not found"},
      {"/x/nope", Kind::kExecFailed, ENOENT, 127, "interpreter"},
      {"/etc/passwd/x", Kind::kExecFailed, ENOTDIR, 127, "Not a directory"},
      {"/etc/passwd", Kind::kExecFailed, EACCES, 126, "Permission denied"},
      {"/x", Kind::kExecFailed, ENOEXEC, 126, "not a program"},
      {"x", Kind::kExecFailed, E2BIG, 126, "too long"},
      {"x", Kind::kDirectoryFailed, ENOENT, 126, "working directory /w"},
      {"x", Kind::kIdentityFailed, EPERM, 126, "becoming user 7"},
      {"x", Kind::kEnterFailed, EAGAIN, 126, "entering the sandbox"},
  };
  for (const Case& test : cases) {
    Launch launch;
    launch.argv = {test.program};
    launch.cwd = "/w";
    launch.identity.uid = 7;
    const channel::Exit exit = exit_from_failure({test.kind, test.number}, launch);
    EXPECT_EQ(exit.code, test.code) << test.text;
    EXPECT_EQ(exit.signal, 0);
    EXPECT_THAT(exit.error, HasSubstr(test.text));
  }
}

TEST(ProgramCandidates, FollowPathUnlessThereIsASlash) {
  EXPECT_THAT(program_candidates("ls", "/usr/bin:/bin"), ElementsAre("/usr/bin/ls", "/bin/ls"));
  EXPECT_THAT(program_candidates("ls", "/a::/b"), ElementsAre("/a/ls", "./ls", "/b/ls"));
  EXPECT_THAT(program_candidates("./ls", "/bin"), ElementsAre("./ls"));
  EXPECT_TRUE(program_candidates("", "/bin").empty());
}

TEST(CompleteEnvironment, AddsOnlyWhatIsMissing) {
  Identity identity;
  identity.name = "node";
  identity.home = "/home/node";
  const auto env = complete_environment({"HOME=/h", "PATHS=no"}, identity, true);
  EXPECT_EQ(environment_value(env, "HOME"), "/h");
  EXPECT_EQ(environment_value(env, "USER"), "node");
  EXPECT_THAT(std::string(environment_value(env, "PATH")), HasSubstr("/usr/bin"));
  EXPECT_EQ(environment_value(env, "TERM"), "xterm-256color");
  EXPECT_EQ(environment_value(complete_environment({}, Identity{}, false), "TERM"), "");
  EXPECT_EQ(environment_value(complete_environment({"PATH="}, identity, false), "PATH"), "")
      << "an empty PATH is a decision";
}

}  // namespace
}  // namespace sandbox::guest
