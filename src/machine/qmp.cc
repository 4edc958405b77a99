#include "machine/qmp.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/socket.h"
#include "base/text.h"

namespace sandbox {

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxKeptEvents = 256;
constexpr int kMaxDepth = 32;  // dump() recurses; QEMU's answers nest five deep at most

// Not an object: it was no JSON, or nested too deeply.
Json parse_bounded(std::string_view text) {
  bool too_deep = false;
  const auto look = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json value = Json::parse(text, look, false);
  return too_deep ? Json() : value;
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

// Guest-controlled strings inside may not be UTF-8; replace instead of throwing.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

uint64_t id_of(const Json& object) {
  const auto it = object.find("id");
  return it != object.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

}  // namespace

Status QmpParser::feed(std::string_view bytes) {
  if (failed_) return fail(Code::kProtocol, "QMP: the connection already failed");
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (partial_.size() + part.size() > kMaxLine) {
      failed_ = true;
      return fail(Code::kLimit, "QMP: a line of more than {} bytes", kMaxLine);
    }
    partial_.append(part);
    if (end == bytes.npos) return {};
    bytes.remove_prefix(end + 1);
    const std::string whole = std::move(partial_);
    partial_.clear();
    if (trim(whole).empty()) continue;
    if (auto status = line(whole); !status) {
      failed_ = true;
      return status;
    }
  }
  return {};
}

Status QmpParser::line(std::string_view text) {
  if (ready_.size() >= kMaxPending) return fail(Code::kLimit, "QMP: too many messages at once");
  const Json value = parse_bounded(text);
  if (!value.is_object()) return fail(Code::kProtocol, "QMP: a line that is no JSON object");
  QmpMessage message{};
  if (value.contains("QMP")) {
    message.kind = QmpMessage::Kind::kGreeting;
  } else if (value.contains("return")) {
    message.kind = QmpMessage::Kind::kReturn;
    message.text = dump(value["return"]);
    message.id = id_of(value);
  } else if (value.contains("error") && value["error"].is_object()) {
    message.kind = QmpMessage::Kind::kError;
    message.name = text_of(value["error"], "class");
    message.text = text_of(value["error"], "desc");
    message.id = id_of(value);
  } else if (const std::string event = text_of(value, "event"); !event.empty()) {
    message.kind = QmpMessage::Kind::kEvent;
    message.name = event;
    message.text = value.contains("data") ? dump(value["data"]) : "{}";
  } else {
    return fail(Code::kProtocol, "QMP: a message of no known kind");
  }
  ready_.push_back(std::move(message));
  return {};
}

bool QmpParser::next(QmpMessage& out) {
  if (ready_.empty()) return false;
  out = std::move(ready_.front());
  ready_.pop_front();
  return true;
}

std::string qmp_command(std::string_view name, std::string_view arguments_json, uint64_t id) {
  Json command;
  command["execute"] = name;
  command["id"] = id;
  Json arguments = Json::parse(arguments_json);
  if (!arguments.empty()) command["arguments"] = std::move(arguments);
  return command.dump() + "\n";
}

Status QmpClient::pump(Instant deadline) {
  pollfd wait{fd_.get(), POLLIN, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - monotonic_now());
  const int timeout = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  const int ready = ::poll(&wait, 1, timeout);
  if (ready < 0 && errno != EINTR) return fail_errno(errno, "poll");
  if (ready == 0) return fail(Code::kUnavailable, "QEMU does not answer");
  ASSIGN(const bool open, poll());
  if (!open) return fail(Code::kIo, "QEMU closed its control connection");
  return {};
}

Result<bool> QmpClient::poll() {
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0 && errno == ECONNRESET) return false;
    if (n < 0) return fail_errno(errno, "reading QMP");
    if (n == 0) return false;
    TRY(parser_.feed({buffer, static_cast<size_t>(n)}));
    if (static_cast<size_t>(n) < sizeof buffer) return true;
  }
}

Status QmpClient::negotiate(Instant deadline) {
  QmpMessage message{};
  while (!parser_.next(message)) TRY(pump(deadline));
  if (message.kind != QmpMessage::Kind::kGreeting)
    return fail(Code::kProtocol, "QMP: no greeting at the start");
  auto capabilities = execute("qmp_capabilities", "{}", deadline);
  if (!capabilities) return fail(std::move(capabilities.error()));
  return {};
}

Result<std::string> QmpClient::execute(std::string_view name, std::string_view arguments_json,
                                       Instant deadline, int send_fd) {
  const uint64_t id = next_id_++;
  const std::string command = qmp_command(name, arguments_json, id);
  if (send_fd >= 0) {
    TRY(send_with_fds(fd_.get(), command, {send_fd}));
  } else if (::send(fd_.get(), command.data(), command.size(), MSG_NOSIGNAL) !=
             static_cast<ssize_t>(command.size())) {
    return fail(Code::kIo, "QEMU closed its control connection");
  }
  for (;;) {
    QmpMessage message{};
    while (!parser_.next(message)) TRY(pump(deadline));
    if (message.kind == QmpMessage::Kind::kEvent) {
      if (events_.size() == kMaxKeptEvents) events_.pop_front();
      events_.push_back(std::move(message));
      continue;
    }
    if (message.kind == QmpMessage::Kind::kReturn && message.id == id) return message.text;
    if (message.kind == QmpMessage::Kind::kError)
      return fail(Code::kUnavailable, "QEMU refused {}: {}", name, message.text);
    return fail(Code::kProtocol, "QMP: an answer to nothing that was asked");
  }
}

Result<QmpMessage> QmpClient::wait_event(const std::vector<std::string_view>& names,
                                         Instant deadline) {
  const auto wanted = [&](const QmpMessage& m) {
    return m.kind == QmpMessage::Kind::kEvent &&
           std::find(names.begin(), names.end(), m.name) != names.end();
  };
  for (auto it = events_.begin(); it != events_.end(); ++it) {
    if (!wanted(*it)) continue;
    QmpMessage found = std::move(*it);
    events_.erase(it);
    return found;
  }
  for (;;) {
    QmpMessage message{};
    while (!parser_.next(message)) TRY(pump(deadline));
    if (wanted(message)) return message;
    if (message.kind != QmpMessage::Kind::kEvent)
      return fail(Code::kProtocol, "QMP: an answer to nothing that was asked");
    if (events_.size() == kMaxKeptEvents) events_.pop_front();
    events_.push_back(std::move(message));
  }
}

std::vector<QmpMessage> QmpClient::take_events() {
  QmpMessage message{};
  while (parser_.next(message))
    if (message.kind == QmpMessage::Kind::kEvent) events_.push_back(std::move(message));
  std::vector<QmpMessage> out(std::make_move_iterator(events_.begin()),
                              std::make_move_iterator(events_.end()));
  events_.clear();
  return out;
}

}  // namespace sandbox
