#pragma once
// What every command prints the same way: errors, hints, progress.

#include <memory>
#include <string_view>

#include "base/progress.h"
#include "base/result.h"

namespace sandbox::cli {

// "sandbox: what happened" and, where there is one, "hint: what to do", on stderr.
void print_error(const Error& error);
void print_note(std::string_view text);            // "sandbox: text" on stderr
int fail_with(const Error& error, int exit_code);  // prints, returns exit_code
int usage_error(std::string_view command,
                std::string_view what);  // prints with a hint to --help, returns 2

// A line that is rewritten on a terminal, plain lines elsewhere, on stderr. cancelled() is true
// once SIGINT or SIGTERM arrived while it existed.
std::unique_ptr<Progress> make_progress();

bool stderr_is_terminal();

}  // namespace sandbox::cli
