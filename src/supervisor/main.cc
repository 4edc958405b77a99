// sandbox-supervisor: takes a sandbox's specification and descriptors (spec.h) and sees it through.

#include <csignal>

#include "base/fd.h"
#include "base/log.h"
#include "supervisor/supervisor.h"

namespace sandbox {

namespace {

constexpr size_t kMaxSpecBytes = 4U << 20;

Status run_supervisor() {
  const Fd spec_fd(supervisor_fd::kSpec);
  ASSIGN(const std::string text, read_all(spec_fd.get(), kMaxSpecBytes));
  ASSIGN(SandboxSpec spec, spec_from_json(text));
  for (const int fd :
       {supervisor_fd::kClient, supervisor_fd::kLock, supervisor_fd::kBootRam,
        supervisor_fd::kBootState, supervisor_fd::kBaseDisk, supervisor_fd::kControl})
    TRY(set_cloexec(fd, true));
  SupervisorFds fds{Fd(supervisor_fd::kClient),
                    Fd(supervisor_fd::kLock),
                    Fd(supervisor_fd::kBootRam),
                    Fd(supervisor_fd::kBootState),
                    Fd(supervisor_fd::kBaseDisk),
                    Fd(supervisor_fd::kControl),
                    {}};
  for (size_t i = 0; i < spec.publish.size(); ++i) {
    fds.published.emplace_back(supervisor_fd::kFirstPublished + static_cast<int>(i));
    TRY(set_cloexec(fds.published.back().get(), true));
  }
  ASSIGN(auto supervisor, Supervisor::create(std::move(spec), std::move(fds)));
  return supervisor->run();
}

}  // namespace

}  // namespace sandbox

int main() {
  sandbox::log::set_program("sandbox-supervisor");
  sandbox::log::trace("started");
  std::signal(SIGPIPE, SIG_IGN);
  // The client tells us to stop by closing its end; a terminal's Ctrl-C belongs to the program in
  // the guest.
  for (const int number : {SIGINT, SIGQUIT, SIGHUP}) std::signal(number, SIG_IGN);
  if (const auto status = sandbox::run_supervisor(); !status) {
    sandbox::log::line(status.error().message);
    return 1;
  }
  return 0;
}
