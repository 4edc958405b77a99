#pragma once
// `run --ask` on the terminal: shows one question at a time, takes one key for an answer.
//
// While a question is shown the terminal belongs to it: the caller reads no input for the command
// and writes none of its output there, so that nothing in the sandbox can paint over the question
// or take the key. Keys that were typed before it was shown, and for half a second after, are
// thrown away: they were meant for something else.

#include <termios.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "store/home.h"
#include "supervisor/control_messages.h"

namespace sandbox::cli {

// Which question is next, and what a key means. Pure.
class QuestionQueue {
 public:
  enum class Key { kOnce, kSession, kAlways, kDeny };

  void add(control::Asked question);
  // Answered or expired; true when it is the one that was shown.
  bool over(uint64_t id);
  [[nodiscard]] const control::Asked* current() const {
    return waiting_.empty() ? nullptr : &waiting_.front();
  }
  // "sandbox asks: look up www.example.org? [o]nce [s]ession [a]lways [d]eny (3 more waiting) "
  [[nodiscard]] std::string prompt() const;
  static std::optional<Key> key(char pressed);

 private:
  std::deque<control::Asked> waiting_;
};

class Asker {
 public:
  static constexpr Duration kDeaf = std::chrono::milliseconds(500);

  // Fails where there is no terminal to ask on. `home` has the list of what is always allowed.
  static Result<std::unique_ptr<Asker>> open(const Home& home);
  ~Asker();
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  // The connection on which the sandbox asks, once there is one.
  Status start(Fd control);
  [[nodiscard]] bool showing() const { return shown_ != 0; }
  [[nodiscard]] int control() const { return control_.get(); }    // readable: call on_control()
  [[nodiscard]] int terminal() const { return terminal_.get(); }  // readable: call on_key()
  void on_control();
  void on_key();
  // Takes a question away that still stands. Call before other settings of the terminal come back.
  void end();
  // Was something shown since the last call? Then what the command has painted may be damaged.
  bool take_painted() { return std::exchange(painted_, false); }

 private:
  Asker(Home home, Fd terminal) : home_(std::move(home)), terminal_(std::move(terminal)) {}
  void show();
  void hide(std::string_view outcome);
  void answer(QuestionQueue::Key key);
  void say(std::string_view text) const;
  void send(const control::Request& request) const;

  Home home_;
  Fd terminal_;
  Fd control_;
  QuestionQueue queue_;
  uint64_t shown_ = 0;  // id of the question on the screen; 0: none
  Instant shown_at_;
  termios before_{};
  bool painted_ = false;
};

}  // namespace sandbox::cli
