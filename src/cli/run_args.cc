#include "cli/run_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "base/text.h"
#include "cli/rules.h"
#include "cli/words.h"
#include "machine/shape.h"
#include "store/home.h"

namespace sandbox::cli {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kLeastBytes = 256 * kMiB;  // of memory and of disk: less does not boot
constexpr uint64_t kMostMemory = uint64_t{1} << 40;
constexpr size_t kMostPublished = 64;  // more can be added while it runs
constexpr uint64_t kMostTimeoutSeconds = 365 * 86400;

// npm and pip try again after a denial as after any failure, and npm waits 10 s, then 60 s, before
// it does. They still try as npm would, but at once (docs/decisions/043).
constexpr std::array<std::string_view, 3> kRetrySettings = {"NPM_CONFIG_FETCH_RETRY_MINTIMEOUT=50",
                                                            "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT=200",
                                                            "PIP_RETRIES=1"};

// npm reads its variables in upper and in lower case.
bool names_variable(const std::vector<std::string>& env, std::string_view name) {
  return std::any_of(env.begin(), env.end(), [&](std::string_view pair) {
    return to_lower(pair.substr(0, pair.find('='))) == to_lower(name);
  });
}

// The words as they stand, before they become values.
struct Words {
  std::string memory;
  std::string disk;
  std::vector<std::string> targets;
  std::vector<std::string> publish;
  bool hardened = false;
  bool privileged = false;
};

Error wrong(std::string message) {
  return {Code::kInvalid, std::move(message), "sandbox run --help"};
}

// "90", "90s", "10m", "2h"
Result<Duration> parse_timeout(const std::string& text) {
  const std::string_view all(text);
  const size_t unit_at = std::min(all.find_first_not_of("0123456789"), all.size());
  const std::string_view unit = all.substr(unit_at);
  const auto number = parse_decimal(all.substr(0, unit_at));
  const uint64_t factor = unit.empty() || unit == "s" ? 1
                          : unit == "m"               ? 60
                          : unit == "h"               ? 3600
                                                      : 0;
  if (!number || *number == 0 || factor == 0 || *number > kMostTimeoutSeconds / factor)
    return fail(wrong(fmt::format("--timeout {}: not a time like 90s, 10m or 2h", text)));
  return Duration(std::chrono::seconds(*number * factor));
}

Result<uint64_t> parse_bytes(std::string_view flag, const std::string& text, uint64_t most) {
  const auto size = parse_size(text);
  if (size && *size >= kLeastBytes && *size <= most) return *size;
  return fail(
      wrong(fmt::format("{} {}: not a size from 256m to {}", flag, text, format_size(most))));
}

Result<std::string> single_target(const std::vector<std::string>& targets) {
  if (targets.size() == 1) return targets[0];
  if (targets.empty())
    return fail(Error{Code::kInvalid, "no target: name an image, or 'builtin'",
                      "sandbox run builtin -- sh -c 'id; uname -r'"});
  return fail(Error{
      Code::kInvalid,
      fmt::format("unexpected word '{}' after the target '{}'", targets[1], targets[0]),
      fmt::format("put the command after '--': sandbox run {} -- {} ...", targets[0], targets[1])});
}

Status take_values(const Words& words, RunArgs& args) {
  ASSIGN(args.target, single_target(words.targets));
  ASSIGN(const uint64_t memory, parse_bytes("--memory", words.memory, kMostMemory));
  args.memory_mib = memory / kMiB;
  if (!words.disk.empty()) {
    ASSIGN(args.disk_bytes, parse_bytes("--disk", words.disk, kDiskBytes));
  }
  if (!args.timeout_text.empty()) {
    ASSIGN(args.timeout, parse_timeout(args.timeout_text));
  }
  if (args.cpus < 1 || args.cpus > 64)
    return fail(wrong(fmt::format("--cpus {}: not a number from 1 to 64", args.cpus)));
  if (args.tty && args.no_tty) return fail(wrong("--tty and --no-tty exclude each other"));
  if (words.hardened && words.privileged)
    return fail(wrong("--hardened and --privileged exclude each other"));
  if (words.hardened) args.profile = channel::Profile::kHardened;
  if (words.privileged) args.profile = channel::Profile::kPrivileged;
  for (const std::string& word : words.publish) {
    ASSIGN(args.publish.emplace_back(), parse_publish(word));
  }
  if (args.publish.size() > kMostPublished)
    return fail(wrong(fmt::format("-p: at most {} ports", kMostPublished)));
  for (const std::string& word : args.env)
    if (word.empty() || word[0] == '=')
      return fail(wrong(fmt::format("-e {}: a variable needs a name", word)));
  if (!args.name.empty()) TRY(check_sandbox_name(args.name));
  return check_rules(args.allow, args.deny);
}

}  // namespace

Result<RunArgs> parse_run_args(std::vector<std::string> words) {
  RunArgs args;
  Words raw{.memory = "4g", .disk = "", .targets = {}, .publish = {}};
  // Everything before "--" is flags and the target, everything after it the command.
  if (const auto dashes = std::find(words.begin(), words.end(), "--"); dashes != words.end()) {
    args.command.assign(dashes + 1, words.end());
    if (args.command.empty()) return fail(wrong("no command after '--'"));
    words.erase(dashes, words.end());
  }
  CLI::App app;
  add_repeatable(app, "--allow", args.allow);
  add_repeatable(app, "--deny", args.deny);
  add_repeatable(app, "-m,--mount", args.mounts);
  add_repeatable(app, "-p,--publish", raw.publish);
  add_repeatable(app, "-e,--env", args.env);
  app.add_option("--name", args.name);
  app.add_option("--cpus", args.cpus);
  app.add_option("--memory", raw.memory);
  app.add_option("--disk", raw.disk);
  app.add_option("-w,--workspace", args.workspace);
  app.add_option("-u,--user", args.user);
  app.add_option("--timeout", args.timeout_text);
  app.add_option("--upstream-proxy", args.upstream_proxy);
  app.add_flag("--trust-host-ca", args.trust_host_ca);
  app.add_flag("--rebuild", args.rebuild);
  app.add_flag("-t,--tty", args.tty);
  app.add_flag("--no-tty", args.no_tty);
  app.add_flag("--hardened", raw.hardened);
  app.add_flag("--privileged", raw.privileged);
  app.add_flag("--ask", args.ask);
  app.add_flag("--show-policy-log", args.show_policy_log);
  app.add_option("TARGET", raw.targets);
  TRY(parse_words(app, "run", std::move(words)));
  TRY(take_values(raw, args));
  return args;
}

Result<std::vector<std::string>> command_for(const RunArgs& args, const ImageConfig& image) {
  std::vector<std::string> argv = image.entrypoint;
  const auto& rest = args.command.empty() ? image.cmd : args.command;
  argv.insert(argv.end(), rest.begin(), rest.end());
  if (!argv.empty()) return argv;
  return fail(Error{Code::kInvalid,
                    fmt::format("the image {} names no command of its own", args.target),
                    fmt::format("sandbox run {} -- COMMAND", args.target)});
}

std::vector<std::string> environment_for(const RunArgs& args, const ImageConfig& image, bool tty,
                                         const char* (*outside)(const char*)) {
  std::vector<std::string> env = image.env;
  for (const std::string_view setting : kRetrySettings)
    if (!names_variable(env, setting.substr(0, setting.find('=')))) env.emplace_back(setting);
  const auto set = [&env](const std::string& pair) {
    const std::string key = pair.substr(0, pair.find('=') + 1);
    std::erase_if(env, [&](const std::string& other) { return other.starts_with(key); });
    env.push_back(pair);
  };
  const auto take = [&](const std::string& name) {
    if (const char* value = outside(name.c_str()); value != nullptr)
      set(fmt::format("{}={}", name, value));
  };
  if (tty) take("TERM");
  if (args.trust_host_ca)
    for (const char* name :
         {"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CARGO_HTTP_CAINFO"})
      set(fmt::format("{}={}", name, channel::kHostRootsPath));
  for (const std::string& word : args.env)
    word.find('=') == std::string::npos ? take(word) : set(word);
  return env;
}

std::string directory_for(const RunArgs& args, const ImageConfig& image,
                          const std::string& workspace) {
  const bool image_has_one = !image.workdir.empty() && image.workdir != "/";
  if (!workspace.empty() && (args.workspace || !image_has_one)) return workspace;
  return image_has_one ? image.workdir : "/";
}

}  // namespace sandbox::cli
