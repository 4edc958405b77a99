// What happens because nothing happened.

#include <algorithm>

#include "net/tcp/limits.h"
#include "net/tcp/stack.h"

namespace sandbox::tcp {

Instant Stack::next_deadline() const {
  return deadlines_.earliest();
}

void Stack::rearm(Flow& flow) {
  deadlines_.wake_by(flow, std::min({flow.ack_at_, flow.resend_at_, flow.life_at_}));
}

void Stack::on_timer(Instant now) {
  now_ = now;
  while (Flow* flow = deadlines_.pop_due(now)) {
    if (flow->ack_at_ <= now) {
      flow->ack_at_ = Instant::never();
      acknowledge_now(*flow);
    }
    if (flow->resend_at_ <= now) resend_timer(*flow);
    if (flow->life_at_ <= now) life_timer(*flow);
    rearm(*flow);
  }
}

// --- resending and probing ---

void Stack::resend_timer(Flow& flow) {
  flow.resend_at_ = Instant::never();
  if (wire_full_) {  // what we sent may still lie in the wire: the guest owes no answer
    flow.resend_at_ = now_ + resend_delay(flow);
    return;
  }
  const bool opening = flow.state_ < State::kEstablished;
  if (!opening && flow.unanswered_ >= kUnanswered) {
    end(flow, Close::kTimeout, Reset::kSend);
    return;
  }
  if (opening) {
    flow.syn_wanted_ = true;
    ++stats_.timeouts;
  } else if (!resend_or_probe(flow)) {
    return;
  }
  ++flow.unanswered_;
  if (resend_delay(flow) < kResendLongest) ++flow.backoff_;
  flow.resend_at_ = now_ + resend_delay(flow);
  want_output(flow);
}

// False when there is nothing to wait for any more.
bool Stack::resend_or_probe(Flow& flow) {
  if (flow.flight() > 0) {
    ++stats_.timeouts;
    go_back(flow);
  }
  const Next next = next_segment(flow);
  if (!next.pending) return false;
  if (flow.snd_wnd_ == 0) {
    flow.probe_wanted_ = true;
  } else {
    flow.push_small_ = true;
  }
  return true;
}

// --- ends by time ---

Instant Stack::life_limit(const Flow& flow) const {
  if (flow.rst_after_flush_) return flow.state_since_ + kFlush;
  switch (flow.state_) {
    case State::kDeciding:
      return flow.state_since_ + kDecision;
    case State::kSynSent:
    case State::kSynReceived:
      return flow.state_since_ + kHalfOpen;
    case State::kEstablished:
      return flow.last_heard_ + kKeepAliveIdle + flow.keepalives_ * kKeepAlivePeriod;
    case State::kTimeWait:
      return flow.state_since_ + kTimeWaitTime;
    default:
      return std::max(flow.last_data_, flow.state_since_) + kHalfClosed;
  }
}

void Stack::life_timer(Flow& flow) {
  shrink_idle_rings(flow);
  if (now_ >= life_limit(flow)) {
    if (flow.state_ == State::kTimeWait) return finish(flow);
    const bool alive = flow.state_ == State::kEstablished && flow.keepalives_ < kKeepAlives;
    if (!alive) {
      end(flow, Close::kTimeout, flow.state_ == State::kSynSent ? Reset::kSilent : Reset::kSend);
      return;
    }
    ++flow.keepalives_;
    flow.probe_wanted_ = true;
    want_output(flow);
  }
  flow.life_at_ = std::min(life_limit(flow), idle_ring_check(flow));
}

// --- ring memory of idle flows ---

// When to look again whether the rings may give memory back. A lazy five-second beat while they
// have any.
Instant Stack::idle_ring_check(const Flow& flow) const {
  const bool has_memory = flow.rx_.allocated() > 0 || flow.tx_.allocated() > 0;
  return has_memory ? std::max(now_, flow.last_data_) + kRingIdle : Instant::never();
}

void Stack::watch_idle_rings(Flow& flow) {
  flow.life_at_ = std::min(flow.life_at_, now_ + kRingIdle);
  rearm(flow);
}

void Stack::shrink_idle_rings(Flow& flow) {
  if (now_ - flow.last_data_ < kRingIdle) return;
  flow.rx_.shrink();
  flow.tx_.shrink();
}

}  // namespace sandbox::tcp
