#include "cli/run_args.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace sandbox::cli {
namespace {

using Words = std::vector<std::string>;

TEST(RunArgs, DefaultsAreThoseOfTheManual) {
  const auto args = parse_run_args({"builtin"});
  ASSERT_TRUE(args) << args.error().message;
  EXPECT_EQ(args->cpus, 2U);
  EXPECT_EQ(args->memory_mib, 4096U);
  EXPECT_EQ(args->disk_bytes, 0U);
  EXPECT_EQ(args->profile, channel::Profile::kDev);
  EXPECT_FALSE(args->timeout || args->workspace);
}

TEST(RunArgs, FlagsMayStandOnEitherSideOfTheTarget) {
  const auto args =
      parse_run_args({"--allow", "a.test", "builtin", "--allow", "b.test", "--", "ls", "--allow"});
  ASSERT_TRUE(args) << args.error().message;
  EXPECT_EQ(args->target, "builtin");
  EXPECT_EQ(args->allow, (Words{"a.test", "b.test"}));
  EXPECT_EQ(args->command, (Words{"ls", "--allow"}));  // behind "--" nothing is ours
}

TEST(RunArgs, BecomesValues) {
  const auto args =
      parse_run_args({"--memory", "1.5g", "--disk", "10g", "--timeout", "2h", "--hardened", "x"});
  ASSERT_TRUE(args) << args.error().message;
  EXPECT_EQ(args->memory_mib, 1536U);
  EXPECT_EQ(args->disk_bytes, uint64_t{10} << 30);
  EXPECT_EQ(args->timeout, std::chrono::hours(2));
  EXPECT_EQ(args->profile, channel::Profile::kHardened);
}

TEST(RunArgs, EveryErrorNamesTheWordAndHasAHint) {
  const struct {
    Words words;
    std::string_view says;
    std::string_view hint;
  } cases[] = {
      {{}, "no target", "sandbox run builtin"},
      {{"builtin", "ls"}, "unexpected word 'ls'", "put the command after '--'"},
      {{"builtin", "--"}, "no command after '--'", "--help"},
      {{"--alow", "x", "builtin"}, "unknown flag '--alow'", "--allow"},
      {{"builtin", "--allow"}, "--allow", "--help"},
      {{"--allow", "a.*.b", "builtin"}, "position 3", ""},
      {{"--allow", "127.0.0.1:80", "builtin"}, "is the sandbox itself", "--allow host.internal:80"},
      {{"--memory", "lots", "builtin"}, "--memory lots", "--help"},
      {{"--memory", "100m", "builtin"}, "--memory 100m", "--help"},
      {{"--disk", "65g", "builtin"}, "--disk 65g", "--help"},
      {{"--cpus", "0", "builtin"}, "--cpus 0", "--help"},
      {{"--cpus", "-1", "builtin"}, "--cpus", "--help"},
      {{"--timeout", "0", "builtin"}, "--timeout 0", "--help"},
      {{"--timeout", "5d", "builtin"}, "--timeout 5d", "--help"},
      {{"--timeout", "99999999999999999999h", "builtin"}, "--timeout 9999", "--help"},
      {{"--tty", "--no-tty", "builtin"}, "exclude each other", "--help"},
      {{"--hardened", "--privileged", "builtin"}, "exclude each other", "--help"},
      {{"-e", "=x", "builtin"}, "a variable needs a name", "--help"},
      {{"--name", "Not/Ok", "builtin"}, "sandbox name 'Not/Ok'", ""},
  };
  for (const auto& c : cases) {
    const auto args = parse_run_args(c.words);
    ASSERT_FALSE(args) << c.says;
    EXPECT_NE(args.error().message.find(c.says), std::string::npos) << args.error().message;
    EXPECT_NE(args.error().hint.find(c.hint), std::string::npos) << args.error().hint;
  }
}

TEST(CommandFor, CombinesEntrypointAndCommandAsDockerDoes) {
  ImageConfig image;
  image.entrypoint = {"/entry", "-x"};
  image.cmd = {"default"};
  RunArgs args;
  EXPECT_EQ(command_for(args, image).value_or(Words{}), (Words{"/entry", "-x", "default"}));
  args.command = {"mine", "too"};
  EXPECT_EQ(command_for(args, image).value_or(Words{}), (Words{"/entry", "-x", "mine", "too"}));
  EXPECT_FALSE(command_for(RunArgs{}, ImageConfig{}));
}

const char* outside(const char* name) {
  const std::string_view asked(name);
  return asked == "TERM" ? "xterm" : asked == "B" ? "from outside" : nullptr;
}

Words without_retries(Words env) {
  std::erase_if(env, [](const std::string& pair) {
    return pair.starts_with("NPM_CONFIG_FETCH_RETRY_") || pair.starts_with("PIP_RETRIES=");
  });
  return env;
}

TEST(EnvironmentFor, TheUsersWordWinsOverTheImages) {
  ImageConfig image;
  image.env = {"A=image", "PATH=/bin"};
  RunArgs args;
  args.env = {"A=mine", "B", "UNSET", "E="};
  EXPECT_EQ(without_retries(environment_for(args, image, false, outside)),
            (Words{"PATH=/bin", "A=mine", "B=from outside", "E="}));
}

TEST(EnvironmentFor, ATerminalBringsItsType) {
  EXPECT_EQ(without_retries(environment_for(RunArgs{}, ImageConfig{}, true, outside)),
            Words{"TERM=xterm"});
}

TEST(EnvironmentFor, NpmAndPipTryAgainAtOnceUnlessTheImageOrTheUserSaysHow) {
  EXPECT_EQ(environment_for(RunArgs{}, ImageConfig{}, false, outside),
            (Words{"NPM_CONFIG_FETCH_RETRY_MINTIMEOUT=50", "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT=200",
                   "PIP_RETRIES=1"}));
  ImageConfig image;
  image.env = {"npm_config_fetch_retry_mintimeout=7"};
  RunArgs args;
  args.env = {"PIP_RETRIES=9"};
  EXPECT_EQ(environment_for(args, image, false, outside),
            (Words{"npm_config_fetch_retry_mintimeout=7", "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT=200",
                   "PIP_RETRIES=9"}));
}

TEST(EnvironmentFor, TheHostsAuthoritiesAreNamedToWhoBringsABundleAndMineStillWin) {
  ImageConfig image;
  image.env = {"SSL_CERT_FILE=/image.pem"};
  RunArgs args;
  args.env = {"CARGO_HTTP_CAINFO=/mine.pem"};
  const Words without = environment_for(args, image, false, outside);
  args.trust_host_ca = true;
  const Words with = environment_for(args, image, false, outside);
  const std::string path = channel::kHostRootsPath;
  const auto has = [](const Words& words, const std::string& word) {
    return std::ranges::count(words, word);
  };
  for (const char* name : {"SSL_CERT_FILE=", "NODE_EXTRA_CA_CERTS=", "REQUESTS_CA_BUNDLE="}) {
    EXPECT_EQ(has(with, name + path), 1) << name;
    EXPECT_EQ(has(without, name + path), 0) << name;
  }
  EXPECT_EQ(has(with, "SSL_CERT_FILE=/image.pem"), 0);
  EXPECT_EQ(has(with, "CARGO_HTTP_CAINFO=/mine.pem"), 1);
  EXPECT_EQ(has(with, "CARGO_HTTP_CAINFO=" + path), 0);
}

TEST(DirectoryFor, TheImagesOwnUnlessAWorkspaceWasNamed) {
  ImageConfig with;
  with.workdir = "/app";
  RunArgs plain;
  RunArgs named;
  named.workspace = ".";
  EXPECT_EQ(directory_for(plain, with, "/home/u/p"), "/app");
  EXPECT_EQ(directory_for(named, with, "/workspace"), "/workspace");
  EXPECT_EQ(directory_for(plain, ImageConfig{}, "/home/u/p"), "/home/u/p");
  EXPECT_EQ(directory_for(plain, ImageConfig{}, ""), "/");
}

}  // namespace
}  // namespace sandbox::cli
