// Segments to the guest. Nothing here changes a sequence number before the sink has taken the
// packet.

#include <algorithm>
#include <limits>

#include "net/tcp/limits.h"
#include "net/tcp/stack.h"

namespace sandbox::tcp {

bool Stack::send_packet(const Tuple& tuple, const SegmentSpec& spec) {
  const std::span<uint8_t> room = sink_.packet_room(packet_size(spec));
  if (room.empty()) {
    wire_full_ = true;
    return false;
  }
  write_segment(tuple, spec, room);
  sink_.send_packet();
  ++stats_.segments_out;
  return true;
}

// Any segment of a connection carries its ACK and window, so it settles what was owed of those.
bool Stack::send_segment(Flow& flow, Seq seq, uint8_t flags, const ReadSpans& payload) {
  const Window window = window_to_send(flow);
  SegmentSpec spec;
  spec.seq = seq;
  spec.ack = flow.rcv_nxt_;
  spec.flags = flags | flag::kAck;
  spec.window = window.field;
  spec.payload = payload;
  if (!send_packet(flow.tuple_, spec)) return false;
  flow.rcv_edge_ = later_of(flow.rcv_edge_, window.edge);
  flow.rcv_acked_ = flow.rcv_nxt_;
  flow.ack_now_ = false;
  flow.ack_at_ = Instant::never();
  return true;
}

// One turn of a flow. It leaves the list when it has nothing more to send; on a full wire it stays.
void Stack::output(Flow& flow) {
  if (flow.state_ == State::kClosed) {
    if (flow.rst_wanted_ && !send_reset(flow)) return;
    output_.remove(flow);
    retire_if_done(flow);
    return;
  }
  const bool more = output_turn(flow);
  if (flow.state_ >= State::kEstablished) arm_resend(flow);
  rearm(flow);
  if (!more && !wire_full_) output_.remove(flow);
}

// True when the turn ended before the bytes did.
bool Stack::output_turn(Flow& flow) {
  if (flow.syn_wanted_) return (void)send_syn(flow), false;
  if (flow.state_ < State::kEstablished) {
    // While our SYN-ACK waits for its answer, what is unacceptable is told so and no more.
    if (flow.ack_now_) (void)send_segment(flow, flow.snd_nxt_, 0, {});
    return false;
  }
  if (flow.probe_wanted_ && !send_probe(flow)) return false;
  if (!send_duplicates(flow)) return false;
  const bool more = send_data(flow);
  send_ack_if_due(flow);
  return more;
}

// --- opening and resetting ---

bool Stack::send_syn(Flow& flow) {
  const bool answers = flow.state_ == State::kSynReceived;
  const auto window = static_cast<uint16_t>(std::min<size_t>(UINT16_MAX, config_.rx_limit));
  SegmentSpec spec;
  spec.seq = flow.iss_;
  spec.ack = answers ? flow.rcv_nxt_ : Seq{};
  spec.flags = answers ? flag::kSyn | flag::kAck : flag::kSyn;
  spec.window = window;
  spec.mss = largest_payload();
  if (!answers || flow.scaling_) spec.scale = kOurScale;
  if (!send_packet(flow.tuple_, spec)) return false;
  flow.syn_wanted_ = flow.ack_now_ = false;
  flow.snd_nxt_ = flow.snd_max_ = flow.iss_ + 1;
  flow.rcv_edge_ = later_of(flow.rcv_edge_, flow.rcv_nxt_ + window);
  arm_resend(flow);
  return true;
}

// The number is where the guest expects us next, so that it is believed; before our SYN-ACK that is
// 0 with an ACK of its SYN. A guest that has shrunk its window has not taken what lies beyond it.
bool Stack::send_reset(Flow& flow) {
  const Seq edge = flow.snd_una_ + flow.snd_wnd_;
  const bool shrunk = flow.snd_una_ != flow.iss_ && edge < flow.snd_max_;
  SegmentSpec spec;
  spec.seq = shrunk ? edge : flow.snd_max_;
  spec.ack = flow.rcv_nxt_;
  spec.flags = flag::kRst | flag::kAck;
  if (!send_packet(flow.tuple_, spec)) return false;
  flow.rst_wanted_ = false;
  return true;
}

bool Stack::send_probe(Flow& flow) {
  if (!send_segment(flow, flow.snd_una_ - 1, 0, {})) return false;
  flow.probe_wanted_ = false;
  return true;
}

// --- data ---

Stack::Next Stack::next_segment(const Flow& flow) const {
  if (flow.fin_acked_) return {};
  const auto offset = static_cast<uint32_t>(flow.snd_nxt_ - flow.snd_una_);
  const auto size = static_cast<uint32_t>(flow.tx_.size());
  const uint32_t left = size > offset ? size - offset : 0;
  const uint32_t window =
      flow.recovering_ ? std::min(flow.snd_wnd_, flow.recovery_room_) : flow.snd_wnd_;
  const uint32_t room = window > offset ? window - offset : 0;

  Next next;
  next.offset = offset;
  next.length = std::min({left, room, uint32_t{flow.mss_}});
  next.last = next.length == left;
  next.fin = flow.fin_wanted_ && next.last && offset + left == size && room > left;
  next.pending = left > 0 || (flow.fin_wanted_ && offset <= size);
  // Sender's side of silly window avoidance (RFC 9293, 3.8.6.2.1), without Nagle: the host's writes
  // are passed on as they come.
  const bool useful = next.last || next.length == flow.mss_ || flow.push_small_ ||
                      flow.recovering_ || next.length >= flow.snd_wnd_max_ / 2;
  if (!useful) next.length = 0;
  return next;
}

bool Stack::send_data(Flow& flow) {
  for (uint32_t sent = 0; sent < kTurn;) {
    const Next next = next_segment(flow);
    if (next.length == 0 && !next.fin) return false;
    uint8_t flags = next.fin ? flag::kFin : 0;
    if (next.last && next.length > 0) flags |= flag::kPsh;
    const ReadSpans payload =
        next.length > 0 ? flow.tx_.view(next.offset, next.length) : ReadSpans{};
    if (!send_segment(flow, flow.snd_nxt_, flags, payload)) return true;
    if (flow.snd_nxt_ < flow.snd_max_) ++stats_.retransmitted;
    flow.snd_nxt_ += next.length + (next.fin ? 1 : 0);
    flow.snd_max_ = later_of(flow.snd_max_, flow.snd_nxt_);
    flow.push_small_ = false;
    sent += next.length + 1;
  }
  return true;
}

// The timer runs while something is unacknowledged, or waits for a window. Not while it only waits
// for the wire.
void Stack::arm_resend(Flow& flow) {
  if (flow.resend_at_ != Instant::never()) return;
  if (flow.flight() == 0 && (wire_full_ || !next_segment(flow).pending)) return;
  flow.resend_at_ = now_ + resend_delay(flow);
}

Duration Stack::resend_delay(const Flow& flow) {
  return std::min<Duration>(kResendFirst * (1 << flow.backoff_), kResendLongest);
}

// --- acknowledging ---

bool Stack::send_duplicates(Flow& flow) {
  while (flow.duplicates_owed_ > 0) {
    if (!send_segment(flow, flow.snd_nxt_, 0, {})) return false;
    --flow.duplicates_owed_;
  }
  return true;
}

void Stack::send_ack_if_due(Flow& flow) {
  if (wire_full_) return;
  const auto unacknowledged = static_cast<uint32_t>(flow.rcv_nxt_ - flow.rcv_acked_);
  const uint32_t enough = std::min(2 * flow.rcv_mss_, static_cast<uint32_t>(rx_limit(flow) / 4));
  const bool due =
      flow.ack_now_ || (unacknowledged > 0 && unacknowledged >= enough) || window_update_due(flow);
  if (due) {
    (void)send_segment(flow, flow.snd_nxt_, 0, {});
  } else if (unacknowledged > 0 && flow.ack_at_ == Instant::never()) {
    flow.ack_at_ = now_ + kAckDelay;
  }
}

size_t Stack::rx_free(const Flow& flow) const {
  const size_t limit = rx_limit(flow);
  return limit > flow.rx_.size() ? limit - flow.rx_.size() : 0;
}

// The right edge we would promise now. It moves only by steps worth a segment or half the ring: the
// receiver's side of silly window avoidance (RFC 9293, 3.8.6.2.2), and what keeps duplicate ACKs
// equal.
Seq Stack::offered_edge(const Flow& flow) const {
  size_t free = rx_free(flow);
  if (budget_.scarce()) free = std::min<size_t>(free, kScarceWindow);
  const Seq edge = flow.rcv_nxt_ + static_cast<uint32_t>(free);
  const size_t step =
      std::min<size_t>(rx_limit(flow) / 2, std::max(flow.rcv_mss_, uint32_t{kDefaultMss}));
  return edge - flow.rcv_edge_ >= static_cast<int32_t>(step) ? edge : flow.rcv_edge_;
}

// The field is in units of 2^scale. Rounding up would promise more than there is, rounding down
// takes back: up, then, where the ring allows it.
Stack::Window Stack::window_to_send(const Flow& flow) const {
  const int scale = flow.scaling_ ? kOurScale : 0;
  const auto window = static_cast<uint32_t>(offered_edge(flow) - flow.rcv_nxt_);
  uint32_t field = (window + (1u << scale) - 1) >> scale;
  if ((size_t{field} << scale) > rx_free(flow)) field = window >> scale;
  field = std::min(field, uint32_t{UINT16_MAX});
  return {static_cast<uint16_t>(field), flow.rcv_nxt_ + (field << scale)};
}

// Worth a segment of its own: half the ring came free, or little was left on offer. The first bytes
// of a guest draw one, since a SYN cannot offer more than 65535; before them, nothing is sent only
// to say so.
bool Stack::window_update_due(const Flow& flow) const {
  if (flow.bytes_from_guest_ == 0 || flow.guest_fin_ || flow.state_ < State::kEstablished ||
      flow.state_ > State::kFinWait2) {
    return false;
  }
  const auto gain = static_cast<size_t>(offered_edge(flow) - flow.rcv_edge_);
  const auto left = static_cast<size_t>(flow.rcv_edge_ - flow.rcv_nxt_);
  const size_t limit = rx_limit(flow);
  return gain > 0 && (gain >= limit / 2 || left < limit / 4);
}

}  // namespace sandbox::tcp
