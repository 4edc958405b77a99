#pragma once
// One helper process of a sandbox, started as docs/processes.md says.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/process.h"
#include "base/result.h"

namespace sandbox {

class Helper {
 public:
  // `fds` are the descriptors from 5 on; 2, 3 and 4 are made here.
  static Result<Helper> start(std::string_view program, const std::string& config_json,
                              std::vector<std::pair<int, int>> fds);

  // Blocks until it has confined itself, or says why not.
  Status wait_ready(Duration at_most = 10s);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int pidfd() const { return child_.pidfd.get(); }
  [[nodiscard]] pid_t pid() const { return child_.pid; }
  [[nodiscard]] int control() const { return control_.get(); }
  [[nodiscard]] int errors() const { return errors_.get(); }
  Status send(std::string_view json);
  void
  drain_errors();  // takes in what it wrote to stderr, without blocking; the last 64 KiB are kept

  void close_control() { control_.reset(); }  // it exits
  bool wait(Duration at_most);                // false: still running
  void kill();
  // After its end: "sandbox-gateway ended unexpectedly (killed by signal 9 (Killed))", with its
  // last words.
  Error obituary();

 private:
  Helper(std::string name, Child child, Fd control, Fd errors)
      : name_(std::move(name)),
        child_(std::move(child)),
        control_(std::move(control)),
        errors_(std::move(errors)) {}

  std::string name_;
  Child child_;
  Fd control_;
  Fd errors_;
  std::string error_text_;
  int wait_status_ = -1;
};

}  // namespace sandbox
