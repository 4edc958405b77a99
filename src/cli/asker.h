#pragma once
// `run --ask` on the terminal: shows one question at a time, takes one key for an answer.
//
// While a question is shown the terminal belongs to it: the caller reads no input for the command
// and writes none of its output there, so that nothing in the sandbox can paint over the question
// or take the key.
//
// What was typed before the question was shown, and for half a second after, is thrown away: it was
// meant for something else. So is what a terminal answers to a program that asked it for its
// colours or its title: it comes as if it were typed, however late, has letters in it, and the
// command may have asked just before the question. Anything but a key therefore begins the half
// second anew.

#include <termios.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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

// Which of the bytes that a terminal gives are an answer to the question on it. Pure.
class AnswerKeys {
 public:
  static constexpr Duration kDeaf = std::chrono::milliseconds(500);

  void shown(Instant now) { deaf_until_ = now + kDeaf; }
  // All that was read at once: one key, or the same one held down.
  std::optional<QuestionQueue::Key> take(std::string_view typed, Instant now);

 private:
  Instant deaf_until_;
};

class Asker {
 public:
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
  AnswerKeys keys_;
  termios before_{};
  bool painted_ = false;
};

}  // namespace sandbox::cli
