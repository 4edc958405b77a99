#pragma once
// The user's terminal while a command in a sandbox owns it.

#include <termios.h>

#include <optional>

#include "channel/protocol.h"

namespace sandbox::cli {

// Raw mode while the object lives. Restored by the destructor, by exit(), and by the signals that
// end a process with an orderly handler; only SIGKILL of this program leaves a raw terminal
// (`reset` mends it).
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
};

channel::WindowSize terminal_size();

// Signals as readable events: a pipe that a handler writes the number into. Old handlers come back
// at the end.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  [[nodiscard]] int fd() const;
  std::optional<int> take();  // the next signal that arrived
};

}  // namespace sandbox::cli
