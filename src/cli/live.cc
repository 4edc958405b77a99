#include "cli/live.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "base/socket.h"
#include "store/run_record.h"
#include "supervisor/control_server.h"

namespace sandbox::cli {

namespace {

constexpr int kPatienceMs = 30'000;
constexpr size_t kNamed = 10;

std::string names_of(const Home& home, bool alive_only) {
  std::string out;
  size_t named = 0;
  const auto runs = list_runs(home);
  for (size_t i = 0; runs && i < runs->size() && named < kNamed; ++i) {
    const RunEntry& run = (*runs)[i];
    if (alive_only && !run.alive) continue;
    out += fmt::format("{}{}", named++ == 0 ? "" : ", ", run.name);
  }
  return out;
}

Error not_running(const Home& home, const std::string& name) {
  const std::string others = names_of(home, true);
  return {Code::kUnavailable, fmt::format("sandbox '{}' is not running", name),
          others.empty() ? fmt::format("start it: sandbox run --name {} TARGET", name)
                         : fmt::format("running: {}", others)};
}

}  // namespace

Result<std::string> existing_run_dir(const Home& home, const std::string& name) {
  ASSIGN(std::string dir, home.run_dir(name));
  std::error_code ignored;
  if (std::filesystem::is_directory(dir, ignored)) return dir;
  Error error{Code::kNotFound, fmt::format("there is no sandbox '{}'", name), {}};
  if (const std::string others = names_of(home, false); !others.empty())
    error.hint = fmt::format("there is: {}", others);
  return fail(std::move(error));
}

bool is_running(const Home& home, const std::string& name) {
  const auto runs = list_runs(home);
  return runs && std::ranges::any_of(
                     *runs, [&](const RunEntry& run) { return run.name == name && run.alive; });
}

Result<LiveSandbox> LiveSandbox::connect(const Home& home, const std::string& name) {
  ASSIGN(const std::string dir, existing_run_dir(home, name));
  ASSIGN(const Fd directory, open_file(dir, O_PATH | O_DIRECTORY));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::strncpy(to.sun_path, control_socket_path(directory).c_str(), sizeof to.sun_path - 1);
  Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection) return fail_errno(errno, "socket");
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0)
    return LiveSandbox(name, std::move(connection));
  // ENOENT: it ended in order, or has not begun; ECONNREFUSED: it was killed.
  if (errno == ENOENT || errno == ECONNREFUSED) return fail(not_running(home, name));
  return fail_errno(errno, fmt::format("connecting to sandbox '{}'", name));
}

Result<control::Reply> LiveSandbox::ask(const control::Request& request,
                                        const std::vector<int>& fds) {
  const std::string message = control::encode(request);
  if (message.size() > control::kMaxMessage)
    return fail(Error{Code::kLimit,
                      fmt::format("one request to a sandbox may have {} KiB, and this one has more",
                                  control::kMaxMessage / 1024),
                      "say it in several"});
  const Error ended{
      Code::kUnavailable, fmt::format("sandbox '{}' ended before it had answered", name_), {}};
  if (!send_with_fds(connection_.get(), message, fds)) return fail(ended);
  pollfd answer{connection_.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&answer, 1, kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  if (ready == 0)
    return fail(Code::kUnavailable, "sandbox '{}' did not answer within {} s", name_,
                kPatienceMs / 1000);
  const auto received = receive_with_fds(connection_.get(), control::kMaxMessage);
  if (!received || received->bytes.empty()) return fail(ended);
  return control::parse_reply(received->bytes);
}

}  // namespace sandbox::cli
