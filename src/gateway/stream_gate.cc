#include "gateway/stream_gate.h"

#include <fmt/format.h>

namespace sandbox::gateway {

namespace {

// So many bytes suffice to tell a TLS record from everything else.
constexpr size_t kTlsPrefix = 5;
// A proper client sends nothing while its upgrade is unanswered; an eager one may send this much.
constexpr size_t kMaxWaiting = 64 * 1024;

std::string explanation(const Decision& decision) {
  std::string out = "sandbox: " + decision.text;
  if (!decision.hint.empty())
    out += fmt::format("\nTo allow it: sandbox run {} ...", decision.hint);
  return out;
}

}  // namespace

void StreamGate::refuse(Step& step, Decision decision, Bytes farewell) {
  step.decisions.push_back(std::move(decision));
  step.farewell = std::move(farewell);
  step.pass = 0;
  state_ = State::kRefused;
}

// The state of a stream that is neither open nor refused follows from whether anything is held.
StreamGate::Step StreamGate::finished(Step step) {
  held_ -= step.pass;
  if (state_ != State::kOpen && state_ != State::kRefused)
    state_ = held_ == 0 ? State::kWatch : State::kHold;
  step.state = state_;
  return step;
}

StreamGate::Step StreamGate::from_client(ByteView bytes, Instant now) {
  Step step;
  if (state_ == State::kRefused) return finished(std::move(step));
  held_ += bytes.size();
  if (state_ == State::kOpen) {
    step.pass = held_;
    return finished(std::move(step));
  }
  waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
  if (!awaiting_reply_) {
    const Bytes all = std::move(waiting_);
    waiting_.clear();
    advance(all, now, step);
  } else if (waiting_.size() > kMaxWaiting) {
    const std::string_view why = "bytes before the answer to an upgrade";
    refuse(step, gates_.malformed(flow_, why), http::bad_request(why));
  }
  return finished(std::move(step));
}

StreamGate::Step StreamGate::from_server(ByteView bytes, Instant now) {
  Step step;
  if (!awaiting_reply_) return finished(std::move(step));
  const http::UpgradeReply::State reply = reply_->feed(bytes);
  if (reply == http::UpgradeReply::State::kNeedMore) return finished(std::move(step));
  awaiting_reply_ = false;
  http_->upgraded(reply == http::UpgradeReply::State::kAccepted);
  const Bytes all = std::move(waiting_);
  waiting_.clear();
  advance(all, now, step);
  return finished(std::move(step));
}

StreamGate::Step StreamGate::timed_out() {
  Step step;
  if (state_ != State::kHold) return finished(std::move(step));
  const std::string why =
      fmt::format("not complete within {} s", kPatience / std::chrono::seconds(1));
  if (kind_ == Kind::kHttp) {
    refuse(step, gates_.malformed(flow_, why), http::bad_request(why));
  } else {
    refuse(step, gates_.unreadable(flow_, why), tls::alert(tls::kAlertAccessDenied));
  }
  return finished(std::move(step));
}

// `bytes` are the last of those held.
void StreamGate::advance(ByteView bytes, Instant now, Step& step) {
  switch (kind_) {
    case Kind::kUnknown:
      return advance_unknown(bytes, now, step);
    case Kind::kTls:
      return advance_tls(bytes, now, step);
    case Kind::kHttp:
      return advance_http(bytes, now, step);
  }
}

void StreamGate::advance_unknown(ByteView bytes, Instant now, Step& step) {
  if (bytes.empty()) return;
  auto reader = std::make_unique<tls::ClientHelloReader>();
  const tls::ClientHelloReader::State state =
      reader->feed(bytes.first(std::min(bytes.size(), kTlsPrefix)));
  if (state == tls::ClientHelloReader::State::kNotTls) {
    kind_ = Kind::kHttp;
    http_ = std::make_unique<http::RequestReader>();
    return advance_http(bytes, now, step);
  }
  if (bytes.size() < kTlsPrefix && state == tls::ClientHelloReader::State::kNeedMore) {
    waiting_.assign(bytes.begin(), bytes.end());
    return;
  }
  kind_ = Kind::kTls;
  tls_ = std::move(reader);
  advance_tls(bytes.subspan(std::min(bytes.size(), kTlsPrefix)), now, step);
}

void StreamGate::advance_tls(ByteView bytes, Instant now, Step& step) {
  using Seen = tls::ClientHelloReader::State;
  const Seen seen = tls_->feed(bytes);
  if (seen == Seen::kNeedMore) return;
  if (seen == Seen::kUnreadable || seen == Seen::kNotTls)
    return refuse(step, gates_.unreadable(flow_, tls_->reason()),
                  tls::alert(tls::kAlertAccessDenied));
  if (!tls_judged_) {
    Decision decision = gates_.hello(flow_, tls_->hello(), now);
    if (!decision.allow)
      return refuse(step, std::move(decision), tls::alert(tls::kAlertAccessDenied));
    step.decisions.push_back(std::move(decision));
    tls_judged_ = true;
  }
  step.pass = held_;
  if (seen == Seen::kDone) state_ = State::kOpen;
}

void StreamGate::advance_http(ByteView bytes, Instant now, Step& step) {
  using Event = http::RequestReader::Event;
  while (state_ != State::kRefused) {
    const http::RequestReader::Step at = http_->feed(bytes);
    bytes = bytes.subspan(at.consumed);
    switch (at.event) {
      case Event::kNeedMore:
        return;
      case Event::kRequest:
        judge_request(bytes, now, step);
        if (kind_ != Kind::kHttp) return;
        break;
      case Event::kBody:
        step.pass = held_ - bytes.size();
        break;
      case Event::kAwait101:
        reply_ = std::make_unique<http::UpgradeReply>();
        awaiting_reply_ = true;
        waiting_.assign(bytes.begin(), bytes.end());
        return;
      case Event::kOpaque:
        state_ = State::kOpen;
        step.pass = held_;
        return;
      case Event::kNotHttp: {
        Decision decision = gates_.opaque(flow_);
        if (!decision.allow) return refuse(step, std::move(decision), {});
        step.decisions.push_back(std::move(decision));
        state_ = State::kOpen;
        step.pass = held_;
        return;
      }
      case Event::kMalformed: {
        Decision decision = gates_.malformed(flow_, http_->reason());
        Bytes farewell = http::bad_request(explanation(decision));
        return refuse(step, std::move(decision), std::move(farewell));
      }
    }
    // With kAwait101 no byte need follow for the answer to be awaited.
    if (bytes.empty() && !http_->awaits_101()) return;
  }
}

// A head is complete; `rest` is what came behind it.
void StreamGate::judge_request(ByteView rest, Instant now, Step& step) {
  const http::Request& request = http_->request();
  Decision decision = gates_.request(flow_, request, now);
  if (!decision.allow) {
    Bytes farewell = http::forbidden(explanation(decision), request.method == "HEAD");
    return refuse(step, std::move(decision), std::move(farewell));
  }
  step.decisions.push_back(std::move(decision));
  step.pass = held_ - rest.size();
  if (request.form != http::Form::kAuthority) return;
  // The tunnel is a stream of its own, to be read from its first byte.
  kind_ = Kind::kUnknown;
  http_.reset();
  advance(rest, now, step);
}

}  // namespace sandbox::gateway
