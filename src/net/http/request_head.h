#pragma once
// Follows a client's side of a cleartext HTTP/1.x connection (RFC 9110, 9112) and shows the head of
// every request on it.
//
// What it must withstand: the client is hostile, the server may be any, and the two must not be
// made to disagree about where a request ends or whom it is for (request smuggling). So there is
// one strict reading; what a lenient server might read otherwise is kMalformed and refused: bare CR
// or LF, obs-fold, white space around a field name, Content-Length twice or beside
// Transfer-Encoding, a coding list that does not end in a single "chunked", a second Host, a Host
// that disagrees with an absolute target, an HTTP/0.9 request.
//
//   Step step = reader.feed(bytes);  // the client's bytes, in order; only step.consumed of them
//                                    // were taken: feed the rest
//
//   kNeedMore   hold what was consumed: a head is incomplete, or it is not yet clear whether this
//               is HTTP. The bytes held are always exactly those of the unfinished head
//   kNotHttp    only as the first verdict of a connection: no server could read these bytes as HTTP
//   kRequest    a head is complete, see request(); judge it, then pass on what was held; go on
//               feeding
//   kBody       what was consumed belongs to a body: pass it on at once; nothing is buffered
//   kAwait101   nothing consumed: the client may send nothing until the server's answer to its
//               upgrade is known, see below
//   kOpaque     the connection changed its protocol: everything passes, stop feeding
//   kMalformed  see reason(); answer 400 and close
//
// Upgrade: only "websocket" passes, and only in the first request of a connection. What comes after
// it is opaque if the server answers 101 and HTTP if not, so the server's bytes go through
// UpgradeReply until it knows, and then upgraded() is called. RFC 6455 section 4.1 forbids the
// client to send before that answer, so a proper client never notices. "First request only" because
// otherwise that answer had to be found among the answers to earlier requests, where the body of
// one may imitate it. h2c (by upgrade or by prior knowledge) is refused: its requests carry names
// that this reader would not see.
//
// Limits: a head 64 KiB, a chunk-size line 4 KiB, trailers 64 KiB.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/ip.h"
#include "net/http/first_line.h"
#include "policy/host_name.h"

namespace sandbox::http {

// host [ ":" port ], as Host, absolute-form or CONNECT carry it. The host is a name or an address,
// never both.
class Authority {
 public:
  explicit Authority(policy::HostName name, std::optional<uint16_t> port = {})
      : name_(std::move(name)), port_(port) {}
  explicit Authority(const IpAddress& address, std::optional<uint16_t> port = {})
      : address_(address), port_(port) {}
  static std::optional<Authority> parse(std::string_view text);

  [[nodiscard]] const policy::HostName* name() const { return name_ ? &*name_ : nullptr; }
  [[nodiscard]] const IpAddress* address() const { return name_ ? nullptr : &address_; }
  [[nodiscard]] std::optional<uint16_t> port() const { return port_; }
  [[nodiscard]] bool same_host(const Authority& other) const {
    return name_ == other.name_ && address_ == other.address_;
  }
  [[nodiscard]] std::string text() const;
  friend bool operator==(const Authority&, const Authority&) = default;

 private:
  std::optional<policy::HostName> name_;
  IpAddress address_;
  std::optional<uint16_t> port_;
};

enum class Form { kOrigin, kAbsolute, kAuthority, kAsterisk };

struct Request {
  std::string method;
  Form form = Form::kOrigin;
  std::string target;             // as sent
  int minor = 1;                  // HTTP/1.minor: 0 or 1
  std::optional<Authority> host;  // whom it is for; absent only in HTTP/1.0
  uint16_t default_port = 80;     // of the scheme of an absolute target; 80 otherwise
  bool websocket = false;
  bool expect_continue = false;
};

class RequestReader {
 public:
  static constexpr size_t kMaxHead = 64 * 1024;
  static constexpr size_t kMaxChunkLine = 4 * 1024;
  enum class Event { kNeedMore, kNotHttp, kRequest, kBody, kAwait101, kOpaque, kMalformed };
  struct Step {
    Event event = Event::kNeedMore;
    size_t consumed = 0;
  };

  Step feed(ByteView bytes);
  void upgraded(bool accepted);  // with kAwait101: what UpgradeReply found

  [[nodiscard]] const Request& request() const { return request_; }    // from kRequest on
  [[nodiscard]] const std::string& reason() const { return reason_; }  // with kMalformed
  [[nodiscard]] uint64_t requests() const { return requests_; }        // heads seen
  [[nodiscard]] bool awaits_101() const { return phase_ == Phase::kAwait; }
  // Nothing of a request is held or outstanding: end of stream here is a clean end.
  [[nodiscard]] bool between_requests() const { return phase_ == Phase::kHead && head_.empty(); }

 private:
  enum class Phase {
    kHead,
    kLength,
    kChunkSize,
    kChunkData,
    kChunkEnd,
    kTrailers,
    kAwait,
    kOpaque,
    kFailed,
    kNotHttp
  };
  Step read_head(ByteView bytes);
  Step read_body(ByteView bytes);
  Step read_line(ByteView bytes);
  Step malformed(std::string why, size_t consumed);
  Step head_complete(size_t consumed);

  Phase phase_ = Phase::kHead;
  Request request_;
  std::string reason_;
  std::string head_;      // the unfinished head, or the unfinished line of chunked framing
  bool is_http_ = false;  // the first line was recognised
  FirstLine first_line_;
  uint64_t left_ = 0;  // of the body or chunk
  uint64_t trailer_bytes_ = 0;
  uint64_t requests_ = 0;
};

// Reads the server's side until it is known whether an upgrade was accepted; interim answers (100,
// 103) are passed over. All bytes may be passed to the client as they come.
class UpgradeReply {
 public:
  enum class State { kNeedMore, kAccepted, kDeclined };
  State feed(ByteView bytes);

 private:
  State state_ = State::kNeedMore;
  std::string head_;
};

// Whole responses that close the connection. `text` is the body, for people; no body when the
// request was HEAD.
Bytes forbidden(std::string_view text, bool head_only = false);  // 403
Bytes bad_request(std::string_view text);                        // 400

}  // namespace sandbox::http
