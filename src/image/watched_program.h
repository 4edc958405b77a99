#pragma once
// Runs a long-lived helper program (skopeo, mmdebstrap): its output line by line, regular ticks,
// and an orderly end when the user cancels.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/progress.h"
#include "base/result.h"

namespace sandbox {

struct WatchedProgram {
  std::vector<std::string> argv;  // argv[0] is looked up in PATH when it has no slash
  int stdout_fd = -1;   // where its standard output goes; -1: read as lines like its standard error
  Duration grace = 5s;  // between SIGTERM and SIGKILL when cancelled
  std::function<void(std::string_view line)> on_line = [](std::string_view) {};
  std::function<void()> on_tick = [] {};  // every 200 ms or so
};

struct WatchedEnd {
  int exit_code = 0;              // 128+n when killed by signal n
  std::vector<std::string> tail;  // its last lines, escaped for a terminal
};

// kCancelled when the user cancelled; the program and what it started in its session are gone then.
Result<WatchedEnd> run_watched(const WatchedProgram& program, Progress& progress);

}  // namespace sandbox
