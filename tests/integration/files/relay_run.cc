// Runs a command that sees shares through the whole file wire, without a VM: sandbox-files on one
// end of a socketpair, the guest's relay on the other, mounts in a user and mount namespace of
// their own. No rights are needed beyond /dev/fuse.
//
//   relay_run --server PATH [--records FILE] --share HOST=MOUNT[=ro] … -- COMMAND ARGUMENT…
//
// Exits as the command does; 120 when something of the wire failed, which it says on stderr. HOST
// may be a regular file. FILE takes what the server recorded, one JSON object a line.

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/file.h"
#include "base/process.h"
#include "base/socket.h"
#include "base/text.h"
#include "guest/file_relay.h"

namespace sandbox {
namespace {

struct Options {
  std::string server;
  std::string records;
  std::vector<channel::Share> shares;
  std::vector<std::string> hosts;
  std::vector<std::string> command;
};

Result<Options> parse(int argc, char** argv) {
  Options out;
  int i = 1;
  for (; i + 1 < argc && std::string_view(argv[i]) != "--"; i += 2) {
    const std::string_view flag = argv[i];
    const std::string_view value = argv[i + 1];
    if (flag == "--server") {
      out.server = value;
    } else if (flag == "--records") {
      out.records = value;
    } else if (flag == "--share") {
      const auto parts = split(value, '=');
      if (parts.size() < 2) return fail(Code::kInvalid, "--share HOST=MOUNT[=ro]");
      channel::Share share;
      share.id = static_cast<uint32_t>(out.shares.size() + 1);
      share.path = parts[1];
      share.read_only = parts.size() > 2 && parts[2] == "ro";
      struct stat st {};
      share.single_file = ::stat(std::string(parts[0]).c_str(), &st) == 0 && S_ISREG(st.st_mode);
      out.shares.push_back(share);
      out.hosts.emplace_back(parts[0]);
    } else {
      return fail(Code::kInvalid, "unknown option {}", flag);
    }
  }
  for (++i; i < argc; ++i) out.command.emplace_back(argv[i]);
  if (out.command.empty() || out.server.empty())
    return fail(Code::kInvalid, "no command or server");
  return out;
}

std::string configuration(const Options& options) {
  nlohmann::json shares = nlohmann::json::array();
  for (size_t i = 0; i < options.shares.size(); ++i)
    shares.push_back({{"id", options.shares[i].id},
                      {"path", options.hosts[i]},
                      {"read_only", options.shares[i].read_only}});
  // The namespace knows user 0 alone.
  return nlohmann::json{{"uid", 0}, {"gid", 0}, {"shares", shares}}.dump();
}

struct Wire {
  Child server;
  Fd port, control, records;
};

Result<Wire> start_server(const Options& options) {
  ASSIGN(auto port, socket_pair(SocketKind::kStream));
  ASSIGN(auto control, socket_pair(SocketKind::kSeqPacket));
  ASSIGN(auto records, socket_pair(SocketKind::kSeqPacket));
  ASSIGN(const Fd config, memory_file("config", configuration(options)));
  SpawnSpec spec;
  spec.argv = {options.server};
  spec.fds = {{2, 2},
              {config.get(), 3},
              {control.second.get(), 4},
              {port.second.get(), 5},
              {records.second.get(), 6}};
  Wire wire;
  ASSIGN(wire.server, spawn(spec));
  control.second.reset();
  ASSIGN(const Received first, receive_with_fds(control.first.get(), 4096));
  if (first.bytes != R"({"ready":true})")
    return fail(Code::kUnavailable, "the server said: {}", first.bytes);
  wire.port = std::move(port.first);
  wire.control = std::move(control.first);
  wire.records = std::move(records.first);
  return wire;
}

Status enter_namespaces() {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) return fail_errno(errno, "unshare");
  const auto put = [](const char* path, const std::string& text) -> Status {
    ASSIGN(const Fd fd, open_file(path, O_WRONLY));
    return write_all(fd.get(), text);
  };
  TRY(put("/proc/self/setgroups", "deny"));
  TRY(put("/proc/self/uid_map", fmt::format("0 {} 1", uid)));
  TRY(put("/proc/self/gid_map", fmt::format("0 {} 1", gid)));
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0)
    return fail_errno(errno, "making mounts private");
  return {};
}

Result<int> run_command(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) {
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Status save_records(int fd, const std::string& path) {
  if (path.empty()) return {};
  std::string lines;
  char buffer[65536];
  while (true) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n <= 0) break;
    lines.append(buffer, static_cast<size_t>(n)).append("\n");
  }
  return write_file_atomic(path, lines);
}

Result<int> run(int argc, char** argv) {
  ASSIGN(const Options options, parse(argc, argv));
  ASSIGN(Wire wire, start_server(options));
  TRY(enter_namespaces());
  ASSIGN(Fd root, open_file("/", O_PATH | O_DIRECTORY));
  ASSIGN(auto relay, guest::FileRelay::start(std::move(wire.port), guest::RootDir(std::move(root)),
                                             options.shares));
  ASSIGN(const int exit_code, run_command(options.command));
  const bool broken = relay->broken();
  relay->stop();
  relay.reset();
  wire.control.reset();
  int status = 0;
  if (::waitpid(wire.server.pid, &status, 0) < 0) return fail_errno(errno, "waitpid");
  TRY(save_records(wire.records.get(), options.records));
  if (broken || status != 0)
    return fail(Code::kIo, "the wire broke; server: {}", describe_wait_status(status));
  return exit_code;
}

}  // namespace
}  // namespace sandbox

int main(int argc, char** argv) {
  const auto code = sandbox::run(argc, argv);
  if (code) return *code;
  std::fprintf(stderr, "relay_run: %s\n", code.error().message.c_str());
  return 120;
}
