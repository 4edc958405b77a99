#pragma once
// How the end of a process, or the failure to start one, becomes the number that a shell would
// show.

#include <string>
#include <string_view>
#include <vector>

#include "channel/messages.h"
#include "guest/workload.h"

namespace sandbox::guest {

// From waitpid(2).
channel::Exit exit_from_wait(int wait_status);

// 127: there is no such program; 126: it is there and does not run, or its surroundings (user,
// directory) could not be made.
channel::Exit exit_from_failure(const LaunchReport& report, const Launch& launch);

// The paths to try for argv[0]: itself when it has a slash, else one for each part of PATH (an
// empty part is the working directory).
std::vector<std::string> program_candidates(const std::string& program, std::string_view path);

// `env` with PATH, HOME, USER and for a terminal TERM added where they are missing.
std::vector<std::string> complete_environment(std::vector<std::string> env,
                                              const Identity& identity, bool tty);
// Value of the last "NAME=…" in env, as execve'd programs see it; empty when there is none.
std::string_view environment_value(const std::vector<std::string>& env, std::string_view name);

}  // namespace sandbox::guest
