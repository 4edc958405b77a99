#pragma once
// Gate 4 on one flow: decides for every byte the client sends whether it may pass. Owned beside the
// flow's buffers.
//
// The client's bytes are held by the caller, in order, in its ring; this class says how many of
// those at the front may go on. Each byte is given to from_client() once. Three endings: the name
// was allowed and nothing more can show (kOpen: stop asking), the stream goes on being watched
// (kWatch), or it is refused.
//
//   auto step = gate.from_client(new_bytes, now);
//   forward step.pass bytes from the front of what is held;
//   for (auto& d : step.decisions) record(d);
//   if (step.state == kRefused) { send step.farewell to the client; close both sides; }
//
// TLS: nothing passes before the hello was judged, see tls::ClientHelloReader. HTTP: nothing of a
// request passes before it was judged, see http::RequestReader. Neither: gates.opaque(). A CONNECT
// that was allowed (proxy/ flows) starts the whole reading again inside the tunnel.

#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "gateway/gates.h"

namespace sandbox::gateway {

class StreamGate {
 public:
  // How long a client may leave its first bytes undecided; then call timed_out().
  static constexpr Duration kPatience = std::chrono::seconds(10);
  enum class State {
    kHold,   // bytes are held and undecided: run the kPatience timer
    kWatch,  // nothing is owed; go on feeding
    kOpen,   // stop feeding: everything passes
    kRefused,
  };
  struct Step {
    State state = State::kHold;
    size_t pass = 0;  // bytes from the front of what is held that may be sent to the server
    std::vector<Decision> decisions;
    Bytes farewell;  // with kRefused: a TLS alert or an HTTP response
  };

  StreamGate(Gates& gates, Flow& flow) : gates_(gates), flow_(flow) {}

  Step from_client(ByteView bytes, Instant now);
  // The server's bytes, while wants_server() says so; they pass in any case. The step may release
  // held client bytes.
  [[nodiscard]] bool wants_server() const { return awaiting_reply_; }
  Step from_server(ByteView bytes, Instant now);
  // The client left its bytes undecided for kPatience.
  Step timed_out();
  [[nodiscard]] State state() const { return state_; }

 private:
  enum class Kind { kUnknown, kTls, kHttp };
  void advance(ByteView bytes, Instant now, Step& step);
  void advance_unknown(ByteView bytes, Instant now, Step& step);
  void advance_tls(ByteView bytes, Instant now, Step& step);
  void advance_http(ByteView bytes, Instant now, Step& step);
  void judge_request(ByteView rest, Instant now, Step& step);
  void refuse(Step& step, Decision decision, Bytes farewell);
  Step finished(Step step);

  Gates& gates_;
  Flow& flow_;
  State state_ = State::kWatch;
  Kind kind_ = Kind::kUnknown;
  std::unique_ptr<tls::ClientHelloReader> tls_;
  std::unique_ptr<http::RequestReader> http_;
  std::unique_ptr<http::UpgradeReply> reply_;
  bool tls_judged_ = false;
  bool awaiting_reply_ = false;
  size_t held_ = 0;  // bytes given to us and not yet passed
  Bytes waiting_;    // of those, the ones no reader has taken: too few to tell TLS, or sent before
                     // the answer to an upgrade
};

}  // namespace sandbox::gateway
