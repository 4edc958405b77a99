// sandbox-recorder: the only process that writes the log of a sandbox, and one that does nothing
// else. Its descriptors and configuration are in docs/processes.md.
//
// Theory of operation. Each source is a SOCK_SEQPACKET; a round of the loop takes at most 64
// messages of each that is readable, so that no source starves another, then writes them in one go.
// The order in the log is the order of arrival here.
//
// Ends. When control and every source have closed, the last record is {"kind":"end"}: a log without
// it was cut off. When control closes first, the sources have 500 ms for what they still send. When
// the disk does not take a record, it says so on control and exits 1, and the supervisor ends the
// sandbox: nothing runs unrecorded.

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "audit/recorder.h"
#include "base/clock.h"
#include "base/confine.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/log.h"

namespace sandbox::audit {
namespace {

using Json = nlohmann::json;

constexpr int kConfigFd = 3;
constexpr int kControlFd = 4;
constexpr int kDirectoryFd = 5;
constexpr int kFirstSourceFd = 10;
constexpr size_t kMaxConfig = 64 * 1024;
constexpr size_t kMaxSources = 64;
constexpr int kMessagesPerRound = 64;
constexpr Duration kReportEvery = std::chrono::seconds(1);
constexpr Duration kLastWords = std::chrono::milliseconds(500);  // for sources after control closed

struct SourceConfig {
  int fd = -1;
  std::string name;
};
struct Config {
  std::vector<SourceConfig> sources;
  uint64_t limit_bytes = 32U << 20;
};

Result<SourceConfig> parse_source(const Json& entry) {
  if (!entry.is_object() || entry.size() != 2 || !entry.contains("fd") || !entry.contains("name") ||
      !entry["fd"].is_number_integer() || !entry["name"].is_string())
    return fail(Code::kInvalid, "a source is {{\"fd\": number, \"name\": text}}");
  const auto fd = entry["fd"].get<int64_t>();
  if (fd < kFirstSourceFd || fd > 4096)
    return fail(Code::kInvalid, "descriptor {} of a source", fd);
  SourceConfig source{static_cast<int>(fd), entry["name"].get<std::string>()};
  if (source.name.empty() || source.name.size() > 64)
    return fail(Code::kInvalid, "the name of a source has 1 to 64 bytes");
  return source;
}

Result<Config> parse_config(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(Code::kInvalid, "configuration is not a JSON object");
  Config config;
  for (const auto& [key, value] : json.items()) {
    if (key == "limit_bytes" && value.is_number_unsigned()) {
      config.limit_bytes = value.get<uint64_t>();
    } else if (key == "sources" && value.is_array() && value.size() <= kMaxSources) {
      for (const Json& entry : value) {
        ASSIGN(SourceConfig source, parse_source(entry));
        config.sources.push_back(std::move(source));
      }
    } else {
      return fail(Code::kInvalid, "configuration key '{}'", key);
    }
  }
  if (config.sources.empty()) return fail(Code::kInvalid, "no sources are configured");
  return config;
}

void tell_supervisor(const Json& message) {
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  (void)::send(kControlFd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tell_error(const Error& error) {
  tell_supervisor({{"error", error.message}, {"hint", error.hint}});
  log::line(error.message);
}

// What is called between here and the end, and what for:
//   recvfrom sendto                   sources, control
//   openat renameat fstat lseek pread64 writev fdatasync fcntl   the log: rotation and the records
//   epoll_wait epoll_ctl              the loop
Status confine_self() {
  TRY(confine::drop_privileges());
  confine::forbid_core_files();
  auto landlock =
      confine::landlock_only({{fmt::format("/proc/self/fd/{}", kDirectoryFd), true}}, false);
  if (!landlock) {
    if (landlock.error().code != Code::kUnavailable) return fail(std::move(landlock).error());
    log::line("this kernel has no Landlock: files are held back by seccomp and permissions only");
  }
  return confine::seccomp_allow({"recvfrom", "sendto", "openat", "renameat", "renameat2", "fstat",
                                 "newfstatat", "lseek", "pread64", "writev", "fdatasync", "fcntl",
                                 "epoll_wait", "epoll_pwait", "epoll_ctl"});
}

class Process {
 public:
  Process(EventLoop& loop, Recorder recorder) : loop_(loop), recorder_(std::move(recorder)) {}

  Status watch(const Config& config) {
    for (size_t i = 0; i < config.sources.size(); ++i) {
      const int fd = config.sources[i].fd;
      TRY(set_nonblocking(fd, true));
      open_.push_back(fd);
      TRY(loop_.add(fd, EventLoop::kRead, [this, i](uint32_t) { take_from(i); }));
    }
    TRY(set_nonblocking(kControlFd, true));
    TRY(loop_.add(kControlFd, EventLoop::kRead, [this](uint32_t) { control(); }));
    loop_.on_idle([this] { end_of_round(); });
    return {};
  }

  int run() {
    loop_.run();
    if (!failed_) keep(recorder_.end(wall_now_ns()));
    return failed_ ? 1 : 0;
  }

 private:
  // The first error of the disk ends the process.
  void keep(Status status) {
    if (status || failed_) return;
    failed_ = true;
    Error error = std::move(status).error();
    error.hint = "free disk space; the sandbox is ended because nothing may run unrecorded";
    tell_error(error);
    loop_.stop();
  }

  void take_from(size_t source) {
    for (int i = 0; i < kMessagesPerRound && open_[source] >= 0 && !failed_; ++i)
      if (!take_one(source)) return;
  }

  // False: nothing there now.
  bool take_one(size_t source) {
    const ssize_t got =
        ::recv(open_[source], buffer_.data(), buffer_.size(), MSG_TRUNC | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      close_source(source);
      return false;
    }
    const auto size = static_cast<size_t>(got);
    if (size > buffer_.size()) {
      recorder_.oversized(source);
    } else {
      keep(recorder_.take(source, {buffer_.data(), size}, wall_now_ns()));
    }
    return true;
  }

  void close_source(size_t source) {
    loop_.remove(open_[source]);
    ::close(open_[source]);
    open_[source] = -1;
    end_if_done();
  }

  void control() {
    char request[4096];
    const ssize_t got = ::recv(kControlFd, request, sizeof request, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) return answer({request, static_cast<size_t>(got)});
    loop_.remove(kControlFd);
    control_open_ = false;
    end_if_done();
    loop_.after(kLastWords, [this] {
      for (size_t source = 0; source < open_.size(); ++source) drain(source);
      loop_.stop();
    });
  }

  void drain(size_t source) {
    while (open_[source] >= 0 && !failed_)
      if (!take_one(source)) return;
  }

  void answer(std::string_view request) {
    const Json json = Json::parse(request, nullptr, false);
    if (json.is_object() && json.size() == 1 && json.value("op", Json()) == "stats") {
      tell_supervisor({{"records", recorder_.records()}, {"malformed", recorder_.malformed()}});
    } else {
      tell_supervisor(
          {{"error", "unknown request"}, {"hint", "the recorder knows {\"op\":\"stats\"}"}});
    }
  }

  void end_if_done() {
    const bool all_closed = std::all_of(open_.begin(), open_.end(), [](int fd) { return fd < 0; });
    if (all_closed && !control_open_) loop_.stop();
  }

  void end_of_round() {
    if (failed_) return;
    keep(recorder_.flush());
    if (!recorder_.has_report() || report_armed_) return;
    report_armed_ = true;
    loop_.after(kReportEvery, [this] {
      report_armed_ = false;
      keep(recorder_.report(wall_now_ns()));
    });
  }

  EventLoop& loop_;
  Recorder recorder_;
  std::vector<int> open_;  // by source; -1: closed
  std::vector<char> buffer_ = std::vector<char>(kMaxRecordBytes);
  bool control_open_ = true;
  bool report_armed_ = false;
  bool failed_ = false;
};

Result<Config> read_config() {
  Fd fd(kConfigFd);
  ASSIGN(const std::string text, read_all(fd.get(), kMaxConfig));
  return parse_config(text);
}

std::vector<std::string> names_of(const Config& config) {
  std::vector<std::string> names;
  for (const SourceConfig& source : config.sources) names.push_back(source.name);
  return names;
}

Result<int> serve() {
  // A closed peer and a file size limit are errors of the call, not the end of the process.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  ::umask(0077);
  ASSIGN(const Config config, read_config());
  ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create());
  TRY(confine_self());
  ASSIGN(LogFile log, LogFile::open(kDirectoryFd, config.limit_bytes));
  Process process(*loop, Recorder(std::move(log), names_of(config)));
  TRY(process.watch(config));
  tell_supervisor({{"ready", true}});
  return process.run();
}

}  // namespace
}  // namespace sandbox::audit

int main() {
  sandbox::log::set_program("sandbox-recorder");
  const auto status = sandbox::audit::serve();
  if (status) return *status;
  sandbox::audit::tell_error(status.error());
  return 1;
}
