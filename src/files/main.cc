// sandbox-files: answers the FUSE messages of one sandbox. Descriptors and configuration are in
// docs/processes.md.
//
// What it holds when it begins to read: O_PATH descriptors of the shared directories, the way to
// its own /proc/self/fd, an inotify instance per share, the port, the control socket. In the root
// it has moved to there is nothing but the shares (own_root.h), Landlock keeps every open beneath
// them and the writing out of the read-only ones, seccomp leaves file calls and no others: no
// socket, no exec, no second process.

#include <sys/stat.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "audit/record_sink.h"
#include "base/confine.h"
#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"
#include "files/own_root.h"
#include "files/service.h"

namespace sandbox::files {
namespace {

constexpr int kConfigFd = 3;
constexpr int kControlFd = 4;
constexpr int kPortFd = 5;
constexpr int kRecordFd = 6;
constexpr size_t kMaxConfig = 1U << 20;

// The calls of tree.cc, of the loop, and of the control socket.
const std::vector<std::string_view> kCalls = {
    "openat",          "openat2",    "statx",       "readlinkat",        "getdents64",
    "lseek",           "pread64",    "pwrite64",    "ftruncate",         "fallocate",
    "copy_file_range", "fsync",      "fdatasync",   "mkdirat",           "symlinkat",
    "mknodat",         "linkat",     "unlinkat",    "renameat2",         "fchmodat",
    "utimensat",       "fstatfs",    "fcntl",       "inotify_add_watch", "inotify_rm_watch",
    "epoll_ctl",       "epoll_wait", "epoll_pwait", "recvmsg",           "recvfrom",
    "sendmsg",         "sendto",     "newfstatat"};

Status confine_to(const Config& config) {
  confine::forbid_core_files();
  TRY(confine::drop_privileges());
  std::vector<confine::PathRight> rights;
  for (const ShareConfig& share : config.shares) rights.push_back({share.path, !share.read_only});
  Status landlock = confine::landlock_only(rights, false);
  // A kernel without Landlock still has the empty root, and openat2, by which alone this process
  // opens anything.
  if (!landlock && landlock.error().code != Code::kUnavailable) return landlock;
  if (!landlock)
    log::line("this kernel has no Landlock; read-only shares are so by this process alone");
  return confine::seccomp_allow(kCalls);
}

audit::Record record_of(const Refusal& refusal) {
  audit::Record record;
  record.proto = "file";
  record.verdict = audit::Outcome::kDeny;
  record.reason = "malformed-request";
  record.text = fmt::format("share {}, {}: {}", refusal.share, refusal.operation, refusal.detail);
  return record;
}

audit::Record record_of(const Error& error) {
  audit::Record record;
  record.kind = audit::Kind::kNote;
  record.proto = "file";
  record.reason = "protocol-violation";
  record.text = error.message;
  return record;
}

void send_control(const nlohmann::json& message) {
  (void)send_with_fds(kControlFd,
                      message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), {});
}

Status serve() {
  const Fd config_fd(kConfigFd);
  ASSIGN(const std::string text, read_all(config_fd.get(), kMaxConfig));
  ASSIGN(Config config, parse_config(text));
  ASSIGN(config, enter_own_root(std::move(config)));
  ASSIGN(auto loop, EventLoop::create());
  ASSIGN(auto service,
         Service::create(*loop, Fd(kPortFd), config, confine::raise_descriptor_limit()));
  ASSIGN(auto records, audit::RecordSink::create(*loop, Fd(kRecordFd)));
  TRY(confine_to(config));
  Status outcome;
  service->on_refusal([&](const Refusal& refusal) { records->write(record_of(refusal)); });
  service->on_end([&](Error error) {
    if (error.code == Code::kProtocol) records->write(record_of(error));
    if (error.code != Code::kCancelled) outcome = fail(std::move(error));
    loop->stop();
  });
  TRY(loop->add(kControlFd, EventLoop::kRead, [&](uint32_t) { loop->stop(); }));
  TRY(service->begin());
  send_control({{"ready", true}});
  loop->run();
  loop->remove(kControlFd);
  records->finish();
  return outcome;
}

}  // namespace
}  // namespace sandbox::files

int main() {
  using namespace sandbox;
  const Fd control(files::kControlFd);  // outlives serve(), which may have an error to send
  log::set_program("sandbox-files");
  // A size limit of the host is an error of one write, a closed port the end of the loop: neither
  // is a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  // The guest kernel has applied the mask of the process that asked.
  ::umask(0);
  const Status status = files::serve();
  if (status) return 0;
  log::line(status.error().message);
  files::send_control({{"error", status.error().message}, {"hint", status.error().hint}});
  return 1;
}
