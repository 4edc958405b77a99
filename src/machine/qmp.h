#pragma once
// QEMU's control protocol (docs/interop/qmp-spec.txt of QEMU): JSON objects, one a line. A QEMU
// that was taken over by its guest may send anything, so lines are bounded and whatever is not a
// QMP message ends the connection.

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

struct QmpMessage {
  enum class Kind { kGreeting, kReturn, kError, kEvent };
  Kind kind;
  std::string name = {};  // of an event; class of an error
  std::string text = {};  // JSON of a return value or of an event's data; description of an error
  uint64_t id = 0;        // of a return or error: that of the command; 0 when QEMU could not tell
};

class QmpParser {
 public:
  static constexpr size_t kMaxLine = 256 << 10;
  static constexpr size_t kMaxPending = 1024;  // messages waiting to be taken

  // kProtocol or kLimit: the parser stays failed.
  Status feed(std::string_view bytes);
  bool next(QmpMessage& out);

 private:
  Status line(std::string_view text);
  std::string partial_;
  std::deque<QmpMessage> ready_;
  bool failed_ = false;
};

// The command as sent, newline included; `arguments_json` must be a JSON object.
std::string qmp_command(std::string_view name, std::string_view arguments_json, uint64_t id);

class QmpClient {
 public:
  QmpClient() = default;
  explicit QmpClient(Fd fd) : fd_(std::move(fd)) {}
  [[nodiscard]] int fd() const { return fd_.get(); }

  Status negotiate(Instant deadline);  // greeting, qmp_capabilities
  // The return value as JSON text; QEMU's refusal is kUnavailable with its words; kIo when it hung
  // up.
  Result<std::string> execute(std::string_view name, std::string_view arguments_json,
                              Instant deadline, int send_fd = -1);
  // Waits for one of `names`; events before it are kept for take_events().
  Result<QmpMessage> wait_event(const std::vector<std::string_view>& names, Instant deadline);
  Result<bool> poll();  // reads what is there; false at end of file
  std::vector<QmpMessage> take_events();

 private:
  Status pump(Instant deadline);
  Fd fd_;
  QmpParser parser_;
  std::deque<QmpMessage> events_;
  uint64_t next_id_ = 1;
};

}  // namespace sandbox
