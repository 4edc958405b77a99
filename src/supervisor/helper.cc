#include "supervisor/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/socket.h"
#include "base/text.h"

namespace sandbox {

namespace {

constexpr size_t kKeptErrorBytes = 64U << 10;

bool poll_readable(int fd, Duration at_most) {
  pollfd p{fd, POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(at_most).count();
  int rc = 0;
  do {
    rc = ::poll(&p, 1, static_cast<int>(ms));
  } while (rc < 0 && errno == EINTR);
  return rc > 0;
}

}  // namespace

Result<Helper> Helper::start(std::string_view program, const std::string& config_json,
                             std::vector<std::pair<int, int>> fds) {
  ASSIGN(const std::string path, find_sibling(program));
  ASSIGN(const Fd config, memory_file("config", config_json));
  ASSIGN(auto control, socket_pair(SocketKind::kSeqPacket));
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) < 0) return fail_errno(errno, "pipe2");
  Fd errors(pipe_fds[0]);
  const Fd errors_write(pipe_fds[1]);
  TRY(set_nonblocking(errors.get(), true));
  fds.emplace_back(config.get(), 3);
  fds.emplace_back(control.second.get(), 4);
  fds.emplace_back(log::trace_enabled() ? STDERR_FILENO : errors_write.get(), 2);
  SpawnSpec spec;
  spec.argv = {path};
  spec.fds = std::move(fds);
  spec.cwd = "/";
  ASSIGN(Child child, spawn(spec));
  return Helper(std::string(program), std::move(child), std::move(control.first),
                std::move(errors));
}

Status Helper::wait_ready(Duration at_most) {
  const Instant deadline = monotonic_now() + at_most;
  while (true) {
    const Duration left = deadline - monotonic_now();
    if (left <= 0ns || !poll_readable(control_.get(), left))
      return fail(Code::kUnavailable, "{} did not become ready within {} s", name_,
                  std::chrono::duration_cast<std::chrono::seconds>(at_most).count());
    auto message = receive_with_fds(control_.get(), 65536);
    if (!message || message->bytes.empty()) {
      wait(1s);
      return fail(obituary());
    }
    const auto j = nlohmann::json::parse(message->bytes, nullptr, false);
    if (j.is_object() && j.value("ready", false)) return {};
    if (j.is_object() && j.contains("error") && j["error"].is_string()) {
      const std::string hint =
          j.contains("hint") && j["hint"].is_string() ? j["hint"].get<std::string>() : "";
      return fail(Error{Code::kUnavailable,
                        fmt::format("{}: {}", name_, j["error"].get<std::string>()), hint});
    }
    return fail(Code::kProtocol, "{} answered with something else than ready", name_);
  }
}

Status Helper::send(std::string_view json) {
  return send_with_fds(control_.get(), json, {});
}

void Helper::drain_errors() {
  char buffer[4096];
  ssize_t n = 0;
  while ((n = ::read(errors_.get(), buffer, sizeof buffer)) > 0) {
    error_text_.append(buffer, static_cast<size_t>(n));
    if (error_text_.size() > kKeptErrorBytes)
      error_text_.erase(0, error_text_.size() - kKeptErrorBytes);
  }
}

bool Helper::wait(Duration at_most) {
  if (wait_status_ >= 0) return true;
  if (!poll_readable(child_.pidfd.get(), at_most)) return false;
  int status = 0;
  if (::waitpid(child_.pid, &status, 0) == child_.pid) wait_status_ = status;
  return true;
}

void Helper::kill() {
  if (wait_status_ < 0) kill_now(child_.pidfd);
}

Error Helper::obituary() {
  drain_errors();
  std::string text =
      fmt::format("{} ended unexpectedly ({})", name_,
                  wait_status_ < 0 ? "unknown status" : describe_wait_status(wait_status_));
  const auto lines = split(trim(error_text_), '\n');
  if (!lines.back().empty()) text += fmt::format(": {}", trim(lines.back()));
  return Error{Code::kInternal, std::move(text)};
}

}  // namespace sandbox
