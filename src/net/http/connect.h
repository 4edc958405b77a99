#pragma once
// The client's side of CONNECT (RFC 9110 section 9.3.6): what is asked of a proxy, and its answer.
//
// The proxy is the host's, but what it says may come from anywhere behind it, so the reading is
// bounded and strict: a status line of HTTP/1.x, whole lines ended by CRLF, at most 32 KiB over all
// interim answers. After a 2xx the tunnel begins with the next byte, whatever Content-Length says.
//
//   ConnectReply reply;
//   auto step = reply.feed(bytes);   only step.consumed of them belong to the answer

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "net/http/request_head.h"

namespace sandbox::http {

// `authorization`: value of Proxy-Authorization; empty: none. The target has a port.
std::string connect_request(const Authority& target, std::string_view authorization);

// "Basic dXNlcjpwYXNz" (RFC 7617).
std::string basic_authorization(std::string_view user, std::string_view password);

class ConnectReply {
 public:
  static constexpr size_t kMaxHead = size_t{32} << 10;
  enum class State {
    kNeedMore,
    kOpen,       // 2xx: the tunnel begins
    kRefused,    // another final status
    kMalformed,  // no answer of an HTTP proxy, or more than kMaxHead
  };
  struct Step {
    State state = State::kNeedMore;
    size_t consumed = 0;
  };

  // After any state but kNeedMore nothing more is taken.
  Step feed(ByteView bytes);

  [[nodiscard]] int status() const { return status_; }  // with kOpen and kRefused
  // Status and reason phrase for people, "403 Forbidden"; escaped, at most 100 bytes.
  [[nodiscard]] std::string text() const;

 private:
  State judge_line();
  State judge_head();

  State state_ = State::kNeedMore;
  std::string line_;        // the unfinished line
  size_t taken_ = 0;        // of the whole answer
  bool in_fields_ = false;  // the status line was read
  int status_ = 0;
  std::string reason_;
};

}  // namespace sandbox::http
