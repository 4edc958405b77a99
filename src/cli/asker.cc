#include "cli/asker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/socket.h"
#include "base/text.h"
#include "store/allow_list.h"

namespace sandbox::cli {

namespace {

constexpr size_t kShownText = 300;  // a host name has 253

std::string_view word_of(QuestionQueue::Key key) {
  switch (key) {
    case QuestionQueue::Key::kOnce:
      return "allowed once";
    case QuestionQueue::Key::kSession:
      return "allowed for this sandbox";
    case QuestionQueue::Key::kAlways:
      return "always allowed";
    case QuestionQueue::Key::kDeny:
      break;
  }
  return "denied";
}

}  // namespace

void QuestionQueue::add(control::Asked question) {
  const bool known = std::ranges::any_of(
      waiting_, [&](const control::Asked& other) { return other.id == question.id; });
  if (!known) waiting_.push_back(std::move(question));
}

bool QuestionQueue::over(uint64_t id) {
  const bool current = !waiting_.empty() && waiting_.front().id == id;
  std::erase_if(waiting_, [id](const control::Asked& each) { return each.id == id; });
  return current;
}

std::string QuestionQueue::prompt() const {
  if (waiting_.empty()) return {};
  const std::string text = escape_terminal(waiting_.front().text).substr(0, kShownText);
  std::string more;
  if (waiting_.size() > 1) more = fmt::format("({} more waiting) ", waiting_.size() - 1);
  return fmt::format("sandbox asks: {}? [o]nce [s]ession [a]lways [d]eny {}", text, more);
}

std::optional<QuestionQueue::Key> QuestionQueue::key(char pressed) {
  switch (pressed) {
    case 'o':
    case 'O':
      return Key::kOnce;
    case 's':
    case 'S':
      return Key::kSession;
    case 'a':
    case 'A':
      return Key::kAlways;
    case 'd':
    case 'D':
    case '\x03':  // Ctrl-C where the terminal is raw
      return Key::kDeny;
    default:
      return std::nullopt;
  }
}

std::optional<QuestionQueue::Key> AnswerKeys::take(std::string_view typed, Instant now) {
  if (typed.empty()) return std::nullopt;
  const auto key = QuestionQueue::key(typed.front());
  if (!key || typed.find_first_not_of(typed.front()) != std::string_view::npos) {
    deaf_until_ = now + kDeaf;
    return std::nullopt;
  }
  return now < deaf_until_ ? std::nullopt : key;
}

Result<std::unique_ptr<Asker>> Asker::open(const Home& home) {
  auto terminal = open_file("/dev/tty", O_RDWR | O_NOCTTY);
  if (terminal) return std::unique_ptr<Asker>(new Asker(home, std::move(*terminal)));
  return fail(Error{Code::kUnavailable, "run: --ask needs a terminal to ask on, and there is none",
                    "without one, allow more while it runs: sandbox policy allow NAME RULE"});
}

Asker::~Asker() {
  end();
}

void Asker::end() {
  if (showing()) hide("no longer asked");
}

Status Asker::start(Fd control) {
  control_ = std::move(control);
  TRY(send_with_fds(control_.get(), control::encode(control::Questions{}), {}));
  return {};
}

void Asker::send(const control::Request& request) const {
  // A sandbox that is gone shows on its other connection.
  (void)send_with_fds(control_.get(), control::encode(request), {});
}

void Asker::say(std::string_view text) const {
  (void)write_all(terminal_.get(), text);
}

void Asker::on_control() {
  const auto received = receive_with_fds(control_.get(), control::kMaxMessage);
  if (!received) return;
  if (received->bytes.empty()) {  // the sandbox has ended, or is about to
    control_.reset();
    return end();
  }
  const auto event = control::parse_event(received->bytes);
  if (!event) return;
  if (!*event) {
    const auto reply = control::parse_reply(received->bytes);
    if (!reply)
      say(fmt::format("\r\n\x1b[Ksandbox: {}\r\n", escape_terminal(reply.error().message)));
    return;
  }
  if (const auto* asked = std::get_if<control::Asked>(&**event)) {
    queue_.add(*asked);
  } else if (const uint64_t id = std::get<control::Over>(**event).id;
             queue_.over(id) && shown_ == id) {
    hide("no longer asked");
  }
  show();
}

// Anew as well, when only the number of those that wait has changed.
void Asker::show() {
  const control::Asked* question = queue_.current();
  if (question == nullptr) return;
  if (shown_ != question->id) {
    if (!showing() && ::tcgetattr(terminal_.get(), &before_) == 0) {
      termios one_key = before_;
      one_key.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      one_key.c_cc[VMIN] = 1;
      one_key.c_cc[VTIME] = 0;
      ::tcsetattr(terminal_.get(), TCSADRAIN, &one_key);
      say("\x1b[0m\r\n");  // whatever colours the command had left
    }
    ::tcflush(terminal_.get(), TCIFLUSH);
    shown_ = question->id;
    keys_.shown(monotonic_now());
    painted_ = true;
  }
  say("\r\x1b[K" + queue_.prompt());
}

void Asker::hide(std::string_view outcome) {
  say(fmt::format("- {}\r\n", outcome));
  ::tcsetattr(terminal_.get(), TCSADRAIN, &before_);
  shown_ = 0;
}

void Asker::on_key() {
  std::array<char, 4096> typed{};
  const ssize_t got = ::read(terminal_.get(), typed.data(), typed.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return answer(QuestionQueue::Key::kDeny);  // hung up
  const auto key = keys_.take({typed.data(), static_cast<size_t>(got)}, monotonic_now());
  if (key) answer(*key);
}

void Asker::answer(QuestionQueue::Key key) {
  const control::Asked question = *queue_.current();
  control::Answer reply{question.id, control::Choice::kDeny};
  if (key == QuestionQueue::Key::kOnce) reply.choice = control::Choice::kOnce;
  if (key == QuestionQueue::Key::kSession || key == QuestionQueue::Key::kAlways)
    reply.choice = control::Choice::kSession;
  std::string outcome(word_of(key));
  if (key == QuestionQueue::Key::kAlways) {
    const auto added = add_to_allow_list(home_, question.rule);
    outcome += added ? fmt::format(", in {}", allow_list_path(home_))
                     : fmt::format(" for this sandbox only: {}", added.error().message);
  }
  send(reply);
  queue_.over(question.id);
  hide(outcome);
  show();
}

}  // namespace sandbox::cli
