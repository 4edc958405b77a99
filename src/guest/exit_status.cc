#include "guest/exit_status.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "base/text.h"

namespace sandbox::guest {
namespace {

using Kind = LaunchReport::Kind;

constexpr uint8_t kCannotRun = 126;
constexpr uint8_t kNotFound = 127;
constexpr std::string_view kDefaultPath =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

channel::Exit failure(uint8_t code, std::string text) {
  return {code, 0, std::move(text)};
}

std::string reason(int number) {
  return std::generic_category().message(number);
}

channel::Exit exec_failure(int number, const Launch& launch) {
  const std::string& program = launch.argv.front();
  if (number == ENOENT && program.find('/') == std::string::npos)
    return failure(kNotFound, fmt::format("{}: command not found in PATH", program));
  if (number == ENOENT)
    return failure(
        kNotFound,
        fmt::format("{}: no such file, or the interpreter that it names is missing", program));
  if (number == ENOTDIR) return failure(kNotFound, fmt::format("{}: {}", program, reason(number)));
  if (number == ENOEXEC)
    return failure(
        kCannotRun,
        fmt::format("{}: not a program for this machine, or a script without #!", program));
  return failure(kCannotRun, fmt::format("{}: {}", program, reason(number)));
}

}  // namespace

channel::Exit exit_from_wait(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return {static_cast<uint8_t>(128 + signal), static_cast<uint8_t>(signal), {}};
  }
  return {static_cast<uint8_t>(WEXITSTATUS(wait_status)), 0, {}};
}

channel::Exit exit_from_failure(const LaunchReport& report, const Launch& launch) {
  switch (report.kind) {
    case Kind::kExecFailed:
      return exec_failure(report.value, launch);
    case Kind::kDirectoryFailed:
      return failure(kCannotRun,
                     fmt::format("working directory {}: {}", launch.cwd, reason(report.value)));
    case Kind::kIdentityFailed:
      return failure(kCannotRun, fmt::format("becoming user {}: {}", launch.identity.uid,
                                             reason(report.value)));
    case Kind::kEnterFailed:
    case Kind::kPid:
      break;
  }
  return failure(kCannotRun, "entering the sandbox: " + reason(report.value));
}

std::vector<std::string> program_candidates(const std::string& program, std::string_view path) {
  if (program.find('/') != std::string::npos) return {program};
  std::vector<std::string> out;
  if (program.empty()) return out;
  for (const std::string_view part : split(path, ':'))
    out.push_back(part.empty() ? "./" + program : fmt::format("{}/{}", part, program));
  return out;
}

std::string_view environment_value(const std::vector<std::string>& env, std::string_view name) {
  std::string_view value;
  for (const std::string_view entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      value = entry.substr(name.size() + 1);
  }
  return value;
}

std::vector<std::string> complete_environment(std::vector<std::string> env,
                                              const Identity& identity, bool tty) {
  const auto add = [&](std::string_view name, std::string entry) {
    for (const std::string_view present : env) {
      if (present.starts_with(name) && present.substr(name.size()).starts_with('=')) return;
    }
    env.push_back(std::move(entry));
  };
  add("PATH", std::string(kDefaultPath));
  add("HOME", "HOME=" + identity.home);
  if (!identity.name.empty()) add("USER", "USER=" + identity.name);
  if (tty) add("TERM", "TERM=xterm-256color");
  return env;
}

}  // namespace sandbox::guest
