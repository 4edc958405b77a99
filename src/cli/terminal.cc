#include "cli/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace sandbox::cli {

namespace {

// What a signal handler and atexit need must be reachable without an object.
termios saved_settings{};
volatile sig_atomic_t raw_active = 0;
int signal_pipe[2] = {-1, -1};

constexpr std::array kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
std::array<struct sigaction, kForwarded.size()> old_actions;

void restore_terminal() {
  if (raw_active != 0) {
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_settings);
    raw_active = 0;
  }
}

extern "C" void note_signal(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number);
  (void)!::write(signal_pipe[1], &byte, 1);
  errno = saved;
}

}  // namespace

RawTerminal::RawTerminal() {
  if (::tcgetattr(STDIN_FILENO, &saved_settings) < 0) return;
  static const int registered = std::atexit(restore_terminal);
  (void)registered;
  termios raw = saved_settings;
  ::cfmakeraw(&raw);
  raw_active = 1;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

RawTerminal::~RawTerminal() {
  restore_terminal();
}

channel::WindowSize terminal_size() {
  winsize size{};
  for (const int fd : {STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO})
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0)
      return {size.ws_row, size.ws_col};
  return {};
}

SignalPipe::SignalPipe() {
  if (::pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0) return;
  struct sigaction action {};
  action.sa_handler = note_signal;
  for (size_t i = 0; i < kForwarded.size(); ++i)
    ::sigaction(kForwarded[i], &action, &old_actions[i]);
}

SignalPipe::~SignalPipe() {
  for (size_t i = 0; i < kForwarded.size(); ++i)
    ::sigaction(kForwarded[i], &old_actions[i], nullptr);
  for (int& fd : signal_pipe) {
    ::close(fd);
    fd = -1;
  }
}

int SignalPipe::fd() const {
  return signal_pipe[0];
}

std::optional<int> SignalPipe::take() {
  unsigned char byte = 0;
  if (::read(signal_pipe[0], &byte, 1) != 1) return std::nullopt;
  return byte;
}

}  // namespace sandbox::cli
