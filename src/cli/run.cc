// sandbox run: from words to a running sandbox, and its exit status.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "audit/log.h"
#include "base/log.h"
#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "cli/asker.h"
#include "cli/commands.h"
#include "cli/denials.h"
#include "cli/host_roots.h"
#include "cli/output.h"
#include "cli/proxy_args.h"
#include "cli/relay.h"
#include "cli/run_args.h"
#include "cli/share_args.h"
#include "cli/terminal.h"
#include "image/store.h"
#include "machine/accel.h"
#include "machine/boot_state.h"
#include "machine/kernel.h"
#include "machine/qemu.h"
#include "store/allow_list.h"
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
  sandbox run -p 8000:8000 builtin -- python3 -m http.server 8000
  sandbox run --allow host.internal:8080 builtin -- curl http://host.internal:8080/

TARGET is 'builtin' (a small Debian, made on this machine) or an image reference as docker takes it.
Without COMMAND the image's own command runs: a shell, for builtin. The current directory is shared,
writable, at its own path, and /workspace points to it; the command starts there unless the image
sets a working directory. / and the home directory itself are never shared unasked.

Network
  --allow RULE       what may be reached; repeatable. RULE: HOST, HOST:PORT, '*.ZONE', an address,
                     a CIDR, each with an optional udp/ or icmp/; NAME@CIDR for a name that
                     resolves to private addresses; host.internal:PORT for a service on this host
  --ask              ask on the terminal about what no rule allows, one key each: once, for this
                     sandbox, always (kept in ~/.sandbox/allow, for every later one), or deny
  --deny RULE        what may not be reached whatever --allow says; repeatable
  -p, --publish [[ADDRESS:]HOST:]GUEST
                     connect port HOST of this host with port GUEST inside; repeatable. Without
                     ADDRESS only this host can connect, without HOST a free port is taken; see
                     sandbox ports --help
  --show-policy-log  at the end, print what was allowed and denied
  --upstream-proxy URL   every connection goes through this HTTP proxy: http://[USER:PASS@]HOST:PORT,
                     or none. Default: this shell's https_proxy, http_proxy or all_proxy; NO_PROXY
                     is honoured. A password in a variable is not seen in the process list
  --trust-host-ca    inside, trust the certificate authorities that this host trusts: its bundle, and
                     the files that SSL_CERT_FILE, NODE_EXTRA_CA_CERTS, REQUESTS_CA_BUNDLE and
                     CURL_CA_BUNDLE of this shell name

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
be started; 2 for a wrong command line; 124 after --timeout; 130 after three times Ctrl-C.
)";

struct Prepared {
  SandboxSpec spec;
  channel::ExecRequest exec;
  BootState boot;
  Fd base_disk;
};

Result<Kernel> kernel_for(const Home& home, Progress& progress) {
  auto kernel = installed_kernel(home);
  if (kernel || kernel.error().code != Code::kNotFound) return kernel;
  return install_kernel(home, progress);
}

Result<Image> image_for(const Home& home, const RunArgs& args, Progress& progress) {
  ASSIGN(ImageStore images, ImageStore::open(home));
  if (args.target == kBuiltinImage) return images.ensure_builtin(progress, args.rebuild);
  return images.ensure(args.target, progress);
}

const char* environment_variable(const char* name) {
  return std::getenv(name);
}

Result<channel::ExecRequest> command_request(const RunArgs& args, const ImageConfig& image,
                                             const Shares& shares) {
  channel::ExecRequest exec;
  exec.tty =
      args.tty || (!args.no_tty && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1);
  exec.size = terminal_size();
  ASSIGN(exec.argv, command_for(args, image));
  exec.env = environment_for(args, image, exec.tty, &environment_variable);
  exec.cwd = directory_for(args, image, shares.workspace);
  exec.user = args.user.empty() ? image.user : args.user;
  return exec;
}

// What a start needs and may have to make first: image, kernel, boot state.
Result<Prepared> prepare(const Home& home, const RunArgs& args, const Shares& shares, Accel accel) {
  Prepared p;
  p.spec.shape = {args.memory_mib, args.cpus, accel};
  // Before what may take minutes: a file that is not there is known at once.
  if (args.trust_host_ca) {
    ASSIGN(p.spec.host_roots, host_roots(host_bundles(), &environment_variable));
  }
  const auto progress = make_progress();
  ASSIGN(const Image image, image_for(home, args, *progress));
  log::trace("image found");
  ASSIGN(const Kernel kernel, kernel_for(home, *progress));
  ASSIGN(p.spec.qemu, find_qemu());
  ASSIGN(const std::string sentry, find_sibling("sandbox-sentry"));
  ASSIGN(p.boot, ensure_boot_state(home, {kernel, sentry, p.spec.qemu, p.spec.shape}, *progress));
  log::trace("boot state checked");
  ASSIGN(p.base_disk, ImageStore::open_base(image));
  ASSIGN(p.exec, command_request(args, image.config, shares));
  p.spec.image = image.reference;
  p.spec.command = p.exec.argv;
  p.spec.boot_key = p.boot.key;
  p.spec.disk_bytes = args.disk_bytes;
  p.spec.allow = args.allow;
  p.spec.deny = args.deny;
  p.spec.ask = args.ask;
  p.spec.shares = shares.list;
  p.spec.workspace = shares.workspace;
  p.spec.profile = args.profile;
  return p;
}

void say_what_to_expect(const RunArgs& args, const Shares& shares, Accel accel,
                        const std::optional<ProxyChoice>& proxy) {
  for (const std::string& note : shares.notes) print_note(note);
  if (proxy && (args.ask || !args.allow.empty()))
    print_note(fmt::format("connections go through the proxy {} ({})", proxy->text(), proxy->from));
  if (accel == Accel::kTcg)
    print_note("no hardware virtualization: emulated, and slower (sandbox doctor says why)");
  if (args.ask)
    print_note("what no rule is about is asked here; no answer in 30 s is a no");
  else if (args.allow.empty())
    print_note("no --allow rules; this sandbox reaches nothing");
}

// What the user has allowed always, in front of what he allows now.
Status add_allow_list(const Home& home, RunArgs& args) {
  ASSIGN(const std::vector<std::string> always, read_allow_list(home));
  if (always.empty()) return {};
  args.allow.insert(args.allow.begin(), always.begin(), always.end());
  print_note(fmt::format("{} {} of {} {} always allowed", always.size(),
                         always.size() == 1 ? "rule" : "rules", allow_list_path(home),
                         always.size() == 1 ? "is" : "are"));
  return {};
}

// Rules may be added while the sandbox runs, so it is given its proxy even where it reaches nothing
// yet; that the proxy is not found is no error then.
Result<std::optional<ProxySpec>> find_proxy(const std::optional<ProxyChoice>& choice,
                                            bool reaches_nothing) {
  if (!choice) return std::nullopt;
  auto located = locate_proxy(*choice);
  if (located) return std::optional(std::move(*located));
  if (!reaches_nothing) return fail(std::move(located).error());
  return std::optional(
      ProxySpec{choice->host, choice->port, {}, choice->authorization, choice->no_proxy});
}

struct Started {
  Child supervisor;
  Fd connection;
  Fd control;
};

Result<Started> start_supervisor(const Prepared& p, const FileLock& lock,
                                 const std::vector<Listener>& listeners) {
  ASSIGN(const std::string path, find_sibling("sandbox-supervisor"));
  ASSIGN(const Fd spec, memory_file("spec", to_json(p.spec)));
  ASSIGN(auto client, socket_pair(SocketKind::kStream));
  ASSIGN(auto control, socket_pair(SocketKind::kSeqPacket));
  SpawnSpec spawn_spec;
  spawn_spec.argv = {path};
  spawn_spec.cwd = "/";
  spawn_spec.die_with_parent = false;  // it sees our end of the connection close, and ends in order
  spawn_spec.fds = {{spec.get(), supervisor_fd::kSpec},
                    {client.second.get(), supervisor_fd::kClient},
                    {lock.fd(), supervisor_fd::kLock},
                    {p.boot.ram.get(), supervisor_fd::kBootRam},
                    {p.boot.state.get(), supervisor_fd::kBootState},
                    {p.base_disk.get(), supervisor_fd::kBaseDisk},
                    {control.second.get(), supervisor_fd::kControl}};
  for (size_t i = 0; i < listeners.size(); ++i)
    spawn_spec.fds.emplace_back(listeners[i].socket.get(),
                                supervisor_fd::kFirstPublished + static_cast<int>(i));
  if (log::trace_enabled()) spawn_spec.fds.emplace_back(STDERR_FILENO, 2);
  ASSIGN(Child child, spawn(spawn_spec));
  return Started{std::move(child), std::move(client.first), std::move(control.first)};
}

Result<std::vector<Listener>> open_ports(const std::vector<PublishSpec>& wanted) {
  std::vector<Listener> listeners;
  for (const PublishSpec& spec : wanted) {
    ASSIGN(listeners.emplace_back(), listen_at(spec));
  }
  return listeners;
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
void print_decisions(const SandboxSpec& spec, bool whole) {
  Denials denials;
  const auto read = audit::read_log(spec.run_dir + "/audit", {}, [&](const audit::LogEntry& entry) {
    if (whole && entry.record.verdict != audit::Outcome::kNone)
      fmt::print(stderr, "{}\n", audit::short_line(entry.record));
    denials.add(entry.record);
    return true;
  });
  if (!read && whole) return print_error(read.error());
  if (denials.empty() || whole) return;
  const std::string log = fmt::format("sandbox policy log {}", spec.name);
  const std::string flag = denials.flag();
  print_error(Error{
      Code::kPermission, denials.summary(),
      flag.empty() ? log : fmt::format("allow it with {}; everything decided: {}", flag, log)});
}

int finish(Result<RelayResult> result, Started started, const RunArgs& args,
           const SandboxSpec& spec) {
  started.connection.reset();  // the supervisor ends the sandbox and puts everything away
  wait_for(started.supervisor);
  print_decisions(spec, args.show_policy_log);
  if (!result) return fail_with(result.error(), kSandboxFailed);
  if (result->timed_out) {
    print_note(fmt::format("the command was ended after {}", args.timeout_text));
    return kTimedOut;
  }
  if (result->interrupted) {
    print_note("interrupted three times; the sandbox was ended");
    return kInterrupted;
  }
  if (!result->exit.error.empty()) print_note(result->exit.error);
  return result->exit.code;
}

int run_command(std::vector<std::string> words) {
  auto args = parse_run_args(std::move(words));
  if (!args) return fail_with(args.error(), kUsage);
  const auto home = Home::open();
  if (!home) return fail_with(home.error(), kSandboxFailed);
  if (const Status listed = add_allow_list(*home, *args); !listed)
    return fail_with(listed.error(), kUsage);
  std::unique_ptr<Asker> asker;
  if (args->ask) {
    auto opened = Asker::open(*home);
    if (!opened) return fail_with(opened.error(), kUsage);
    asker = std::move(*opened);
  }
  const auto shares = plan_shares(*home, args->workspace, args->mounts);
  if (!shares) return fail_with(shares.error(), kUsage);
  const auto proxy = choose_proxy(args->upstream_proxy, &environment_variable);
  if (!proxy) return fail_with(proxy.error(), kUsage);
  // Before the work that may take minutes: an address in use is known at once.
  auto listeners = open_ports(args->publish);
  if (!listeners) return fail_with(listeners.error(), kSandboxFailed);
  const Accel accel = choose_accel().accel;
  auto prepared = prepare(*home, *args, *shares, accel);
  if (!prepared)
    return fail_with(prepared.error(),
                     prepared.error().code == Code::kCancelled ? kInterrupted : kSandboxFailed);
  auto found = find_proxy(*proxy, args->allow.empty() && !args->ask);
  if (!found) return fail_with(found.error(), kSandboxFailed);
  prepared->spec.proxy = std::move(*found);
  for (const Listener& listener : *listeners) prepared->spec.publish.push_back(listener.port.guest);
  say_what_to_expect(*args, *shares, accel, *proxy);
  for (const Listener& listener : *listeners)
    print_note(fmt::format("published: {}", control::text(listener.port)));
  const auto run = claim(*home, *args, prepared->spec.name);
  if (!run) return fail_with(run.error(), kSandboxFailed);
  prepared->spec.run_dir = run->dir;
  auto started = start_supervisor(*prepared, run->lock, *listeners);
  listeners->clear();
  if (!started) return fail_with(started.error(), kSandboxFailed);
  log::trace("supervisor spawned");
  if (asker)
    if (const Status asking = asker->start(std::move(started->control)); !asking)
      return fail_with(asking.error(), kSandboxFailed);
  auto result = relay_command(started->connection, prepared->exec, args->timeout, asker.get());
  asker.reset();
  log::trace("command ended");
  const int status = finish(std::move(result), std::move(*started), *args, prepared->spec);
  log::trace("sandbox ended");
  return status;
}

}  // namespace

extern const Command kRun;
const Command kRun{"run", "run a command in its own microVM", kManual, run_command};

}  // namespace sandbox::cli
