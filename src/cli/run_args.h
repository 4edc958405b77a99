#pragma once
// The words of `sandbox run` as values that cannot be wrong, and what follows from them and an
// image without asking anybody: the command, its variables, its directory.

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "channel/messages.h"
#include "cli/publish.h"
#include "image/image.h"

namespace sandbox::cli {

struct RunArgs {
  std::vector<std::string> allow;  // each a rule of policy/host_pattern.h
  std::vector<std::string> deny;
  std::string name;  // empty: one is made up
  unsigned cpus = 2;
  uint64_t memory_mib = 4096;
  uint64_t disk_bytes = 0;  // 0: as large as the image's disk
  std::optional<std::string> workspace;
  std::vector<std::string> mounts;
  std::vector<PublishSpec> publish;
  std::vector<std::string> env;
  std::string user;
  std::string timeout_text;  // as written, for the message
  std::optional<Duration> timeout;
  std::optional<std::string> upstream_proxy;  // as written; none: what the environment says
  bool trust_host_ca = false;
  bool rebuild = false;
  bool tty = false;
  bool no_tty = false;
  bool show_policy_log = false;
  bool ask = false;
  channel::Profile profile = channel::Profile::kDev;
  std::string target;
  std::vector<std::string> command;  // after "--"; empty: the image's own
};

// Every error is one of usage and says what to write instead.
Result<RunArgs> parse_run_args(std::vector<std::string> words);

// Entrypoint and command as docker combines them: words of the user replace the image's CMD, never
// its ENTRYPOINT.
Result<std::vector<std::string>> command_for(const RunArgs& args, const ImageConfig& image);
// The image's variables, how npm and pip try again where the image does not say, then TERM on a
// terminal, then with --trust-host-ca those that point programs with a bundle of their own to the
// host's, then -e. `-e NAME` takes NAME from `outside`, and is nothing where it is unset.
std::vector<std::string> environment_for(const RunArgs& args, const ImageConfig& image, bool tty,
                                         const char* (*outside)(const char*));
// An image that sets a working directory means it, unless the user named a workspace. `workspace`
// is its guest path, or empty.
std::string directory_for(const RunArgs& args, const ImageConfig& image,
                          const std::string& workspace);

}  // namespace sandbox::cli
