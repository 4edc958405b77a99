#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"

namespace sandbox::cli {

namespace {

void line(std::string_view prefix, std::string_view text) {
  fmt::print(stderr, "{}: {}\n", prefix, escape_terminal(text));
}

std::atomic<bool> interrupted{false};

extern "C" void on_interrupt(int) {
  interrupted = true;
}

// Signals are taken over only while something long is going on, and given back afterwards.
class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = false;
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
  }
  ~InterruptGuard() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

class LineProgress final : public Progress {
 public:
  explicit LineProgress(bool terminal) : terminal_(terminal) {}
  ~LineProgress() override { clear(); }

  void step(std::string_view what) override {
    clear();
    what_ = escape_terminal(what);
    if (terminal_) {
      draw("");
    } else {
      fmt::print(stderr, "{}\n", what_);
    }
  }

  void advance(uint64_t done, uint64_t total) override {
    if (!terminal_) return;
    const Instant now = monotonic_now();
    if (now - last_draw_ < 100ms) return;
    last_draw_ = now;
    draw(total == 0 ? format_size(done)
                    : fmt::format("{}/{}", format_size(done), format_size(total)));
  }

  [[nodiscard]] bool cancelled() const override { return interrupted; }

 private:
  void draw(std::string_view amount) {
    fmt::print(stderr, "\r\x1b[K{} {}", what_, amount);
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() {
    if (!drawn_) return;
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
    drawn_ = false;
  }

  InterruptGuard guard_;
  std::string what_;
  Instant last_draw_{};
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace

void print_error(const Error& error) {
  line("sandbox", error.message);
  if (!error.hint.empty()) line("hint", error.hint);
}

void print_note(std::string_view text) {
  line("sandbox", text);
}

int fail_with(const Error& error, int exit_code) {
  print_error(error);
  return exit_code;
}

int usage_error(std::string_view command, std::string_view what) {
  line("sandbox", fmt::format("{}: {}", command, what));
  line("hint", fmt::format("sandbox {} --help", command));
  return kUsage;
}

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}

std::unique_ptr<Progress> make_progress() {
  return std::make_unique<LineProgress>(stderr_is_terminal());
}

}  // namespace sandbox::cli
