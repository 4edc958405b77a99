// sandbox run: from words to a running sandbox, and its exit status.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>

#include "audit/log.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/denials.h"
#include "cli/output.h"
#include "cli/relay.h"
#include "cli/share_args.h"
#include "cli/terminal.h"
#include "image/store.h"
#include "machine/accel.h"
#include "machine/boot_state.h"
#include "machine/kernel.h"
#include "machine/qemu.h"
#include "policy/policy.h"
#include "store/home.h"
#include "store/run_record.h"
#include "supervisor/spec.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kManual = R"(sandbox run [FLAGS] [TARGET] [-- COMMAND...]

Run a command in its own microVM. It is root there if it likes, and reaches only what --allow names.

  sandbox run builtin -- sh -c 'id; uname -r'
  sandbox run --allow example.org builtin -- curl -sS https://example.org
  sandbox run --allow '*.npmjs.org:443' node:20 -- npm ci
  sandbox run -m ~/data:/data:ro debian:bookworm-slim -- ls /data
  sandbox run --allow host.internal:8080 builtin -- curl http://host.internal:8080/

TARGET is 'builtin' (a small Debian, made on this machine) or an image reference as docker takes it.
Without COMMAND the image's own command runs: a shell, for builtin. The current directory is shared,
writable, at its own path, and /workspace points to it; the command starts there unless the image
sets a working directory. / and the home directory itself are never shared unasked.

Network
  --allow RULE       what may be reached; repeatable. RULE: HOST, HOST:PORT, '*.ZONE', an address,
                     a CIDR, each with an optional udp/ or icmp/; NAME@CIDR for a name that
                     resolves to private addresses; host.internal:PORT for a service on this host
  --deny RULE        what may not be reached whatever --allow says; repeatable
  --show-policy-log  at the end, print what was allowed and denied

Files
  -w, --workspace DIR   share DIR at /workspace instead of the current directory at its own path
  -m, --mount H:G[:ro]  share a directory or file H of this host at G in the guest; repeatable

Machine
  --name NAME        a name, for policy log; default: made up. The log of an earlier sandbox of
                     that name is replaced
  --cpus N           virtual CPUs (2)
  --memory SIZE      memory, used as it is touched (4g)
  --disk SIZE        how large the root file system may grow (64g)
  --rebuild          make the built-in image anew

Command
  -e, --env K=V      set a variable; K alone passes this shell's value
  -u, --user USER    name or uid, with an optional :group; default: the image's, else uid 1000
  -t, --tty          give it a terminal (the default when stdin and stdout are one)
  --no-tty           never
  --hardened         no capability for anyone inside, no sudo
  --privileged       every capability that is safe for the host to give; the network stays policed
  --timeout TIME     end it after e.g. 90s, 10m, 2h (exit status 124)

Exit status: the command's own; 125 when the sandbox failed; 126 and 127 when the command could not
be started; 2 for a wrong command line.
)";

struct RunArgs {
  std::vector<std::string> allow;
  std::vector<std::string> deny;
  std::string name;
  unsigned cpus = 2;
  std::string memory = "4g";
  std::string disk;
  std::optional<std::string> workspace;
  std::vector<std::string> mounts;
  std::vector<std::string> env;
  std::string user;
  std::string timeout;
  bool rebuild = false;
  bool tty = false;
  bool no_tty = false;
  bool hardened = false;
  bool privileged = false;
  bool show_policy_log = false;
  std::string target;
  std::vector<std::string> command;
};

// An unknown flag, with the known one that it resembles.
tl::unexpected<Error> unknown_flag(const CLI::App& app) {
  const std::vector<std::string> extra = app.remaining();
  const std::string word = extra.empty() ? "" : extra.front();
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames().front());
  const auto close = suggest(word, {flags.begin(), flags.end()});
  return fail(Error{Code::kInvalid, fmt::format("run: unknown flag '{}'", word),
                    close ? fmt::format("did you mean {}?", *close) : "sandbox run --help"});
}

// Everything before "--" is flags and the target, everything after it the command.
Result<RunArgs> parse_args(std::vector<std::string> words) {
  RunArgs args;
  const auto dashes = std::find(words.begin(), words.end(), "--");
  if (dashes != words.end()) {
    args.command.assign(dashes + 1, words.end());
    if (args.command.empty()) return fail(Code::kInvalid, "no command after '--'");
    words.erase(dashes, words.end());
  }
  CLI::App app;
  app.set_help_flag();
  std::vector<std::string> targets;
  const auto repeatable = [&](const char* name, std::vector<std::string>& into) {
    app.add_option(name, into)->expected(1)->take_all()->allow_extra_args(false);
  };
  repeatable("--allow", args.allow);
  repeatable("--deny", args.deny);
  repeatable("-m,--mount", args.mounts);
  repeatable("-e,--env", args.env);
  app.add_option("--name", args.name);
  app.add_option("--cpus", args.cpus);
  app.add_option("--memory", args.memory);
  app.add_option("--disk", args.disk);
  app.add_option("-w,--workspace", args.workspace);
  app.add_option("-u,--user", args.user);
  app.add_option("--timeout", args.timeout);
  app.add_flag("--rebuild", args.rebuild);
  app.add_flag("-t,--tty", args.tty);
  app.add_flag("--no-tty", args.no_tty);
  app.add_flag("--hardened", args.hardened);
  app.add_flag("--privileged", args.privileged);
  app.add_flag("--show-policy-log", args.show_policy_log);
  app.add_option("TARGET", targets);
  try {
    std::reverse(words.begin(), words.end());
    app.parse(std::move(words));
  } catch (const CLI::ExtrasError&) {
    return unknown_flag(app);
  } catch (const CLI::ParseError& error) {
    return fail(Code::kInvalid, "{}", error.what());
  }
  if (targets.size() > 1)
    return fail(
        Error{Code::kInvalid,
              fmt::format("unexpected word '{}' after the target '{}'", targets[1], targets[0]),
              fmt::format("put the command after '--': sandbox run {} -- {} ...", targets[0],
                          targets[1])});
  if (targets.empty())
    return fail(Error{Code::kInvalid, "no target: name an image, or 'builtin'",
                      "sandbox run builtin -- sh -c 'id; uname -r'"});
  args.target = targets[0];
  if (args.tty && args.no_tty) return fail(Code::kInvalid, "--tty and --no-tty exclude each other");
  if (args.hardened && args.privileged)
    return fail(Code::kInvalid, "--hardened and --privileged exclude each other");
  return args;
}

Result<std::optional<Duration>> parse_timeout(const std::string& text) {
  if (text.empty()) return std::optional<Duration>();
  const char unit = text.back();
  const auto number = parse_decimal(
      std::string_view(text).substr(0, text.size() - (unit >= '0' && unit <= '9' ? 0 : 1)));
  const int64_t seconds = unit == 'm'                                   ? 60
                          : unit == 'h'                                 ? 3600
                          : unit == 's' || (unit >= '0' && unit <= '9') ? 1
                                                                        : 0;
  if (!number || seconds == 0 || *number == 0 || *number > 365U * 86400)
    return fail(Code::kInvalid, "--timeout {}: not a time like 90s, 10m or 2h", text);
  return std::optional<Duration>(std::chrono::seconds(static_cast<int64_t>(*number) * seconds));
}

Result<MachineShape> parse_shape(const RunArgs& args, Accel accel) {
  const auto memory = parse_size(args.memory);
  constexpr uint64_t kMiB = 1U << 20;
  if (!memory || *memory < 256 * kMiB || *memory > (uint64_t{1} << 40))
    return fail(Code::kInvalid, "--memory {}: not a size from 256m to 1t", args.memory);
  if (args.cpus < 1 || args.cpus > 64)
    return fail(Code::kInvalid, "--cpus {}: not a number from 1 to 64", args.cpus);
  return MachineShape{*memory / kMiB, args.cpus, accel};
}

Result<uint64_t> parse_disk(const std::string& text) {
  if (text.empty()) return uint64_t{0};
  const auto size = parse_size(text);
  if (!size || *size < (uint64_t{256} << 20) || *size > kDiskBytes)
    return fail(Code::kInvalid, "--disk {}: not a size from 256m to 64g", text);
  return *size;
}

Result<std::vector<std::string>> command_for(const RunArgs& args, const Image& image) {
  std::vector<std::string> argv = image.config.entrypoint;
  const auto& rest = args.command.empty() ? image.config.cmd : args.command;
  argv.insert(argv.end(), rest.begin(), rest.end());
  if (argv.empty())
    return fail(Error{Code::kInvalid,
                      fmt::format("the image {} names no command of its own", image.reference),
                      fmt::format("sandbox run {} -- COMMAND", args.target)});
  return argv;
}

Result<std::vector<std::string>> environment_for(const RunArgs& args, const Image& image,
                                                 bool tty) {
  std::vector<std::string> env = image.config.env;
  const auto set = [&env](const std::string& pair) {
    const std::string key = pair.substr(0, pair.find('=') + 1);
    std::erase_if(env, [&](const std::string& other) { return other.starts_with(key); });
    env.push_back(pair);
  };
  const char* term = std::getenv("TERM");
  if (tty && term != nullptr) set(fmt::format("TERM={}", term));
  for (const std::string& word : args.env) {
    if (word.empty() || word[0] == '=')
      return fail(Code::kInvalid, "-e {}: a variable needs a name", word);
    if (word.find('=') != std::string::npos) {
      set(word);
    } else if (const char* value = std::getenv(word.c_str()); value != nullptr) {
      set(fmt::format("{}={}", word, value));
    }
  }
  return env;
}

// An image that sets a working directory means it, unless the user chose a workspace himself.
std::string directory_for(const RunArgs& args, const Image& image, const Shares& shares) {
  const bool image_has_one = !image.config.workdir.empty() && image.config.workdir != "/";
  if (!shares.workspace.empty() && (args.workspace || !image_has_one)) return shares.workspace;
  return image_has_one ? image.config.workdir : "/";
}

struct Prepared {
  SandboxSpec spec;
  channel::ExecRequest exec;
  BootState boot;
  Fd base_disk;
  std::optional<Duration> timeout;
};

Result<Kernel> kernel_for(const Home& home, Progress& progress) {
  auto kernel = installed_kernel(home);
  if (kernel || kernel.error().code != Code::kNotFound) return kernel;
  return install_kernel(home, progress);
}

// What a start needs and may have to make first: image, kernel, boot state.
Result<Prepared> prepare(const Home& home, const RunArgs& args) {
  Prepared p;
  ASSIGN(p.timeout, parse_timeout(args.timeout));
  const AccelChoice accel = choose_accel();
  ASSIGN(p.spec.shape, parse_shape(args, accel.accel));
  ASSIGN(p.spec.disk_bytes, parse_disk(args.disk));
  ASSIGN(const Shares shares, plan_shares(home, args.workspace, args.mounts));
  const auto progress = make_progress();
  ASSIGN(ImageStore images, ImageStore::open(home));
  ASSIGN(const Image image, args.rebuild&& args.target == kBuiltinImage
                                ? images.ensure_builtin(*progress, true)
                                : images.ensure(args.target, *progress));
  log::trace("image found");
  ASSIGN(const Kernel kernel, kernel_for(home, *progress));
  ASSIGN(p.spec.qemu, find_qemu());
  ASSIGN(const std::string sentry, find_sibling("sandbox-sentry"));
  ASSIGN(p.boot, ensure_boot_state(home, {kernel, sentry, p.spec.qemu, p.spec.shape}, *progress));
  log::trace("boot state checked");
  ASSIGN(p.base_disk, ImageStore::open_base(image));

  p.spec.image = image.reference;
  p.spec.boot_key = p.boot.key;
  p.spec.allow = args.allow;
  p.spec.deny = args.deny;
  p.spec.shares = shares.list;
  p.spec.workspace = shares.workspace;
  p.spec.profile = args.hardened     ? channel::Profile::kHardened
                   : args.privileged ? channel::Profile::kPrivileged
                                     : channel::Profile::kDev;
  p.exec.tty =
      args.tty || (!args.no_tty && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1);
  p.exec.size = terminal_size();
  ASSIGN(p.exec.argv, command_for(args, image));
  ASSIGN(p.exec.env, environment_for(args, image, p.exec.tty));
  p.exec.cwd = directory_for(args, image, shares);
  p.exec.user = args.user.empty() ? image.config.user : args.user;
  p.spec.command = p.exec.argv;
  for (const std::string& note : shares.notes) print_note(note);
  if (accel.accel == Accel::kTcg)
    print_note("no hardware virtualization: emulated, and slower (sandbox doctor says why)");
  if (args.allow.empty()) print_note("no --allow rules; this sandbox reaches nothing");
  return p;
}

struct Started {
  Child supervisor;
  Fd connection;
};

Result<Started> start_supervisor(const Prepared& p, const FileLock& lock) {
  ASSIGN(const std::string path, find_sibling("sandbox-supervisor"));
  ASSIGN(const Fd spec, memory_file("spec", to_json(p.spec)));
  ASSIGN(auto client, socket_pair(SocketKind::kStream));
  SpawnSpec spawn_spec;
  spawn_spec.argv = {path};
  spawn_spec.cwd = "/";
  spawn_spec.die_with_parent = false;  // it sees our end of the connection close, and ends in order
  spawn_spec.fds = {{spec.get(), supervisor_fd::kSpec},
                    {client.second.get(), supervisor_fd::kClient},
                    {lock.fd(), supervisor_fd::kLock},
                    {p.boot.ram.get(), supervisor_fd::kBootRam},
                    {p.boot.state.get(), supervisor_fd::kBootState},
                    {p.base_disk.get(), supervisor_fd::kBaseDisk}};
  if (log::trace_enabled()) spawn_spec.fds.emplace_back(STDERR_FILENO, 2);
  ASSIGN(Child child, spawn(spawn_spec));
  return Started{std::move(child), std::move(client.first)};
}

Result<ClaimedRun> claim(const Home& home, const RunArgs& args, std::string& name) {
  name = args.name;
  if (!name.empty()) return claim_run(home, name);
  std::string stem = args.target.substr(args.target.find_last_of('/') + 1);
  stem = to_lower(stem.substr(0, stem.find_first_of(":@")));
  if (!check_sandbox_name(stem) || stem.size() > 50) stem = "run";
  return claim_unnamed_run(home, stem, name);
}

// The whole log on request; else what was refused, in a line, and how to allow it.
void print_decisions(const std::string& run_dir, const std::string& name, bool whole) {
  Denials denials;
  const auto read = audit::read_log(run_dir + "/audit", {}, [&](const audit::LogEntry& entry) {
    if (whole && entry.record.verdict != audit::Outcome::kNone)
      fmt::print(stderr, "{}\n", audit::short_line(entry.record));
    denials.add(entry.record);
    return true;
  });
  if (!read && whole) return print_error(read.error());
  if (denials.empty() || whole) return;
  const std::string log = fmt::format("sandbox policy log {}", name);
  const std::string flag = denials.flag();
  print_error(Error{
      Code::kPermission, denials.summary(),
      flag.empty() ? log : fmt::format("allow it with {}; everything decided: {}", flag, log)});
}

int finish(Result<RelayResult> result, Started started, const RunArgs& args,
           const std::string& run_dir, const std::string& name) {
  started.connection.reset();  // the supervisor ends the sandbox and puts everything away
  wait_for(started.supervisor);
  print_decisions(run_dir, name, args.show_policy_log);
  if (!result) return fail_with(result.error(), kSandboxFailed);
  if (result->timed_out) {
    print_note(fmt::format("the command was ended after {}", args.timeout));
    return 124;
  }
  if (result->interrupted) {
    print_note("interrupted three times; the sandbox was ended");
    return 130;
  }
  if (!result->exit.error.empty()) print_note(result->exit.error);
  return result->exit.code;
}

// A rule for loopback is well-formed and can never help: 127.0.0.1 in the guest is the guest.
Status check_rules(const RunArgs& args) {
  ASSIGN(const auto policy, policy::Policy::create(args.allow, args.deny));
  for (const policy::HostPattern& rule : policy.allow_rules()) {
    const auto address = rule.exact_address();
    if (!address || !Cidr::parse("127.0.0.0/8")->contains(*address)) continue;
    const std::string port = rule.port() ? std::to_string(*rule.port()) : "PORT";
    return fail(Error{
        Code::kInvalid,
        fmt::format("allow rule '{}': inside, {} is the sandbox itself", rule.text(),
                    address->text()),
        fmt::format(
            "a service of this machine: --allow host.internal:{0}, then http://host.internal:{0}/",
            port)});
  }
  return {};
}

int run_command(std::vector<std::string> words) {
  auto args = parse_args(std::move(words));
  if (!args) {
    if (!args.error().hint.empty()) return fail_with(args.error(), kUsage);
    return usage_error("run", args.error().message);
  }
  // Rules are judged before anything is made or started.
  if (const auto status = check_rules(*args); !status) return fail_with(status.error(), kUsage);
  if (!args->name.empty())
    if (const auto status = check_sandbox_name(args->name); !status)
      return fail_with(status.error(), kUsage);
  const auto home = Home::open();
  if (!home) return fail_with(home.error(), kSandboxFailed);
  auto prepared = prepare(*home, *args);
  if (!prepared) {
    if (prepared.error().code == Code::kCancelled) return fail_with(prepared.error(), 130);
    return fail_with(prepared.error(),
                     prepared.error().code == Code::kInvalid ? kUsage : kSandboxFailed);
  }
  auto run = claim(*home, *args, prepared->spec.name);
  if (!run) return fail_with(run.error(), kSandboxFailed);
  prepared->spec.run_dir = run->dir;
  auto started = start_supervisor(*prepared, run->lock);
  if (!started) return fail_with(started.error(), kSandboxFailed);
  log::trace("supervisor spawned");
  auto result = relay_command(started->connection, prepared->exec, prepared->timeout);
  log::trace("command ended");
  const int status =
      finish(std::move(result), std::move(*started), *args, run->dir, prepared->spec.name);
  log::trace("sandbox ended");
  return status;
}

}  // namespace

extern const Command kRun;
const Command kRun{"run", "run a command in its own microVM", kManual, run_command};

}  // namespace sandbox::cli
