#pragma once
// Talking to a sandbox that runs: the client's end of its control socket.

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "store/home.h"
#include "supervisor/control_messages.h"

namespace sandbox::cli {

// run/NAME, or an error that says which sandboxes there are.
Result<std::string> existing_run_dir(const Home& home, const std::string& name);

bool is_running(const Home& home, const std::string& name);

class LiveSandbox {
 public:
  // "sandbox 'x' is not running", and what to do, where it is not.
  static Result<LiveSandbox> connect(const Home& home, const std::string& name);
  // Sends one request and waits for its answer, at most 30 s.
  Result<control::Reply> ask(const control::Request& request, const std::vector<int>& fds = {});

 private:
  LiveSandbox(std::string name, Fd connection)
      : name_(std::move(name)), connection_(std::move(connection)) {}
  std::string name_;
  Fd connection_;
};

}  // namespace sandbox::cli
