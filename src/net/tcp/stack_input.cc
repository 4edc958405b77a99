// Segments from the guest, in the order of RFC 9293, 3.10.7: sequence number, RST, SYN, ACK,
// payload, FIN.

#include <algorithm>

#include "net/ipv4.h"
#include "net/tcp/limits.h"
#include "net/tcp/stack.h"

namespace sandbox::tcp {
namespace {

// A segment no sender has a reason for: scans and attempts to be read differently by different
// readers.
bool is_nonsense(const SegmentView& segment) {
  if (segment.has(flag::kSyn) && (segment.has(flag::kFin) || segment.has(flag::kRst))) return true;
  return !segment.has(flag::kSyn) && !segment.has(flag::kRst) && !segment.has(flag::kAck);
}

}  // namespace

void Stack::input(Ipv4 source, Ipv4 destination, ByteView ip_payload, Instant now) {
  now_ = now;
  ++stats_.segments_in;
  const ParsedSegment parsed = parse_segment(source, destination, ip_payload);
  if (parsed.error) {
    ++(*parsed.error == SegmentError::kBadChecksum ? stats_.bad_checksum : stats_.malformed);
    return;
  }
  const SegmentView& segment = parsed.segment;
  if (is_nonsense(segment)) {
    ++stats_.nonsense_flags;
    return;
  }
  const Tuple tuple{source, destination, segment.source_port, segment.destination_port};
  Flow* flow = table_.find(tuple);
  if (flow == nullptr) return input_without_flow(tuple, segment);
  switch (flow->state_) {
    case State::kDeciding:
      return input_deciding(*flow, segment);
    case State::kSynSent:
      return input_syn_sent(*flow, segment);
    default:
      return input_synchronized(*flow, segment);
  }
}

// --- no flow ---

void Stack::input_without_flow(const Tuple& tuple, const SegmentView& segment) {
  if (segment.has(flag::kRst)) return;
  if (!net::is_unicast(tuple.guest_ip) || !net::is_unicast(tuple.host_ip) ||
      tuple.guest_port == 0) {
    ++stats_.bad_endpoint;
    return;
  }
  const bool opens = segment.has(flag::kSyn) && !segment.has(flag::kAck);
  if (opens && tuple.host_port != 0) return input_syn(tuple, segment, nullptr);
  if (opens) ++stats_.bad_endpoint;
  refuse(tuple, segment);
}

// RFC 9293, 3.10.7.1: the RST must look right to whoever sent the segment.
void Stack::refuse(const Tuple& tuple, const SegmentView& segment) {
  ++stats_.resets_without_flow;
  SegmentSpec spec;
  if (segment.has(flag::kAck)) {
    spec.seq = segment.ack;
    spec.flags = flag::kRst;
  } else {
    spec.ack = segment.seq + segment.length();
    spec.flags = flag::kRst | flag::kAck;
  }
  (void)send_packet(tuple, spec);  // when the wire is full, the guest asks again
}

// `former` is a flow in TIME_WAIT on the same tuple whose place this one takes.
void Stack::input_syn(const Tuple& tuple, const SegmentView& segment, Flow* former) {
  Seq least{};
  const bool reuse = former != nullptr;
  if (reuse) {
    least = former->snd_max_;
    finish(*former);
  }
  Flow* flow = open(tuple);
  if (flow == nullptr) {
    ++stats_.flow_limit;
    refuse(tuple, segment);
    owner_.on_flow_limit(tuple);
    return;
  }
  // Numbers of the former connection must not come again (RFC 9293, 3.6.1).
  constexpr uint32_t kGap = 1 << 17;
  if (reuse && flow->iss_ <= least) flow->iss_ = least + kGap;
  learn_syn(*flow, segment);
  enter(*flow, State::kDeciding);
  raise(*flow, Flow::kSynEvent);
}

// Payload on a SYN is left for the guest to send again: there is no TCP Fast Open here.
void Stack::learn_syn(Flow& flow, const SegmentView& syn) {
  flow.irs_ = syn.seq;
  flow.rcv_nxt_ = flow.rcv_acked_ = syn.seq + 1;
  flow.rcv_edge_ = flow.rcv_nxt_;
  flow.mss_ = std::min(std::max(syn.mss.value_or(kDefaultMss), kSmallestMss), largest_payload());
  flow.scaling_ = syn.scale.has_value();
  flow.snd_scale_ = std::min(syn.scale.value_or(0), kMaxScale);
  flow.snd_wnd_ = flow.snd_wnd_max_ = syn.window;  // never scaled on a SYN
  flow.snd_wl1_ = syn.seq;
  flow.snd_wl2_ = syn.ack;
}

// --- before the connection is synchronized ---

void Stack::input_deciding(Flow& flow, const SegmentView& segment) {
  if (segment.has(flag::kRst)) {
    const bool ours = segment.seq == flow.irs_ || segment.seq == flow.rcv_nxt_;
    if (ours) end(flow, Close::kReset, Reset::kSilent);
    return;
  }
  const bool opens = segment.has(flag::kSyn) && !segment.has(flag::kAck);
  if (opens && segment.seq != flow.irs_) start_over(flow, segment);
}

// A SYN with another number where nothing was established: the guest's kernel has forgotten the
// first attempt.
void Stack::start_over(Flow& flow, const SegmentView& syn) {
  const Tuple tuple = flow.tuple_;
  leave_place(flow);
  end(flow, Close::kReplaced, Reset::kSilent);
  input_syn(tuple, syn, nullptr);
}

void Stack::input_syn_sent(Flow& flow, const SegmentView& segment) {
  const bool acks = segment.has(flag::kAck);
  if (acks && segment.ack != flow.iss_ + 1) {
    if (!segment.has(flag::kRst)) refuse(flow.tuple_, segment);
    return;
  }
  if (acks && flow.snd_max_ == flow.iss_) return;  // an answer to a SYN that was never sent
  if (segment.has(flag::kRst)) {
    if (acks) end(flow, Close::kRefused, Reset::kSilent);
    return;
  }
  if (!segment.has(flag::kSyn)) return;
  learn_syn(flow, segment);
  flow.last_heard_ = now_;
  if (acks) {
    flow.ack_now_ = true;
    establish(flow);
    return;
  }
  // Simultaneous open: the same SYN again, now with an ACK.
  flow.snd_nxt_ = flow.iss_;
  flow.syn_wanted_ = true;
  enter(flow, State::kSynReceived);
  want_output(flow);
}

void Stack::establish(Flow& flow) {
  flow.snd_una_ = flow.iss_ + 1;
  flow.snd_nxt_ = flow.snd_max_ = flow.snd_una_;
  flow.syn_wanted_ = false;
  flow.backoff_ = flow.unanswered_ = 0;
  flow.resend_at_ = Instant::never();
  enter(flow, flow.fin_wanted_ ? State::kFinWait1 : State::kEstablished);
  raise(flow, Flow::kEstablishedEvent);
  want_output(flow);
}

// --- synchronized, or with our SYN-ACK out ---

void Stack::input_synchronized(Flow& flow, SegmentView segment) {
  if (segment.has(flag::kSyn) && !segment.has(flag::kRst)) {
    if (!is_syn_ack_of_open(flow, segment)) return input_syn_again(flow, segment);
    segment.flags &= static_cast<uint8_t>(~flag::kSyn);
    segment.seq += 1;
  }
  if (segment.has(flag::kRst)) return input_reset(flow, segment);
  const bool bare = segment.length() == 0;  // before anything is cut off
  if (!take_sequence(flow, segment)) return;
  if (!segment.has(flag::kAck)) return;
  if (!take_ack(flow, segment, bare)) return;
  if (!segment.payload.empty()) take_payload(flow, segment);
  if (segment.has(flag::kFin) &&
      segment.seq + static_cast<uint32_t>(segment.payload.size()) == flow.rcv_nxt_) {
    take_fin(flow);
  }
}

// After a simultaneous open the guest's SYN-ACK acknowledges ours and repeats its own.
bool Stack::is_syn_ack_of_open(const Flow& flow, const SegmentView& segment) const {
  return flow.opened_by_us_ && flow.state_ == State::kSynReceived && segment.has(flag::kAck) &&
         segment.seq == flow.irs_;
}

void Stack::input_syn_again(Flow& flow, const SegmentView& segment) {
  const bool opens = !segment.has(flag::kAck);
  if (flow.state_ == State::kSynReceived && opens) {
    if (segment.seq != flow.irs_) return start_over(flow, segment);
    flow.syn_wanted_ = true;  // our SYN-ACK was lost
    want_output(flow);
    return;
  }
  // RFC 9293, 3.6.1: a number past all of the former connection cannot be an old duplicate.
  if (flow.state_ == State::kTimeWait && opens && segment.seq > flow.rcv_nxt_) {
    return input_syn(flow.tuple_, segment, &flow);
  }
  challenge(flow);
}

// RFC 5961, 3.2: only the very next number resets; another one inside the window is asked about.
void Stack::input_reset(Flow& flow, const SegmentView& segment) {
  if (segment.seq == flow.rcv_nxt_) {
    const bool refused = flow.opened_by_us_ && flow.state_ == State::kSynReceived;
    end(flow, refused ? Close::kRefused : Close::kReset, Reset::kSilent);
  } else if (segment.seq > flow.rcv_nxt_ && segment.seq < flow.rcv_edge_) {
    challenge(flow);
  }
}

// A bare ACK that tells the guest where we stand; rationed, so that two confused ends do not talk
// for ever.
void Stack::challenge(Flow& flow) {
  if (now_ - flow.challenge_start_ >= kChallengePeriod) {
    flow.challenge_start_ = now_;
    flow.challenges_ = 0;
  }
  if (flow.challenges_ >= kChallenges) return;
  ++flow.challenges_;
  ++stats_.challenge_acks;
  acknowledge_now(flow);
}

void Stack::acknowledge_now(Flow& flow) {
  flow.ack_now_ = true;
  want_output(flow);
}

// Is any of the segment inside the window? Cuts off what is not. A zero window still lets the ACK
// of the next segment in (RFC 9293, 3.10.7.4), and the FIN right at the edge needs no room. The
// last segment sent again has nothing new but may carry a newer ACK, which is taken as other
// stacks take it; not before the handshake is over.
bool Stack::take_sequence(Flow& flow, SegmentView& segment) {
  const Seq end = segment.seq + segment.length();
  const bool opening = flow.state_ < State::kEstablished;
  const bool after_past =
      opening && segment.length() > 0 ? end > flow.rcv_nxt_ : end >= flow.rcv_nxt_;
  if (!after_past || segment.seq > flow.rcv_edge_) {
    refuse_sequence(flow, segment);
    return false;
  }
  if (segment.seq < flow.rcv_nxt_) {
    if (end == flow.rcv_nxt_) forget_fin(flow, segment);
    const auto known = static_cast<uint32_t>(flow.rcv_nxt_ - segment.seq);
    segment.payload = segment.payload.subspan(std::min<size_t>(known, segment.payload.size()));
    segment.seq = flow.rcv_nxt_;
    acknowledge_now(flow);  // it was sent twice
  }
  const int32_t excess =
      segment.seq + static_cast<uint32_t>(segment.payload.size()) - flow.rcv_edge_;
  if (excess > 0) {
    segment.payload = segment.payload.first(segment.payload.size() - static_cast<size_t>(excess));
    segment.flags &= static_cast<uint8_t>(~flag::kFin);
    acknowledge_now(flow);
  }
  if (segment.seq > flow.rcv_nxt_ && segment.length() > 0) {
    ++stats_.out_of_order;
    if (flow.duplicates_owed_ < kMaxDuplicatesOwed) ++flow.duplicates_owed_;
    want_output(flow);
    segment.payload = {};
    segment.flags &= static_cast<uint8_t>(~flag::kFin);
  }
  return true;
}

// A FIN that was taken before. In TIME-WAIT it starts the wait over.
void Stack::forget_fin(Flow& flow, SegmentView& segment) {
  if (segment.has(flag::kFin) && flow.state_ == State::kTimeWait) enter(flow, State::kTimeWait);
  segment.flags &= static_cast<uint8_t>(~flag::kFin);
}

// Old data, keep-alives and window probes are answered, each. Anything else may be one half of a
// quarrel.
void Stack::refuse_sequence(Flow& flow, const SegmentView& segment) {
  const bool probe = segment.seq + 1 == flow.rcv_nxt_;
  if (segment.length() == 0 && !probe) return challenge(flow);
  flow.last_heard_ = now_;
  flow.keepalives_ = flow.unanswered_ = 0;
  acknowledge_now(flow);
  if (flow.state_ == State::kTimeWait && segment.has(flag::kFin)) enter(flow, State::kTimeWait);
}

// --- ACK and window ---

// `bare`: the segment came without payload and FIN.
bool Stack::take_ack(Flow& flow, const SegmentView& segment, bool bare) {
  if (flow.state_ == State::kSynReceived) {
    if (segment.ack <= flow.snd_una_ || segment.ack > flow.snd_max_) {
      refuse(flow.tuple_, segment);
      flow.duplicates_owed_ = 0;  // the RST has said all there is to say
      flow.ack_now_ = false;
      return false;
    }
    establish(flow);
  }
  // RFC 5961, 5.2; and no byte before our first was ever there to be acknowledged.
  const uint64_t acknowledged = flow.bytes_to_guest_ + (flow.fin_acked_ ? 1 : 0);
  const Seq oldest =
      flow.snd_una_ - static_cast<uint32_t>(std::min<uint64_t>(flow.snd_wnd_max_, acknowledged));
  if (segment.ack > flow.snd_max_ || segment.ack < oldest) {
    challenge(flow);
    return false;
  }
  flow.last_heard_ = now_;
  flow.keepalives_ = flow.unanswered_ = 0;
  if (flow.state_ != State::kTimeWait) live_.move_to_back(flow);

  const bool newer = segment.ack > flow.snd_una_;
  const bool window_changed = take_window(flow, segment);
  if (newer) take_new_ack(flow, segment.ack);
  if (flow.state_ == State::kClosed) return false;
  const bool repeated = !newer && segment.ack == flow.snd_una_ && !window_changed;
  if (repeated && bare) take_duplicate_ack(flow);
  if (flow.tx_starved_ && (tx_has_room(flow) || may_grow_tx(flow))) {
    flow.tx_starved_ = false;
    raise(flow, Flow::kWritableEvent);
  }
  return true;
}

// A newer ACK brings news of the window whatever its sequence number: a segment that came before
// its turn may have had a higher one.
bool Stack::take_window(Flow& flow, const SegmentView& segment) {
  const bool news = flow.snd_una_ < segment.ack || flow.snd_wl1_ < segment.seq ||
                    (flow.snd_wl1_ == segment.seq && flow.snd_wl2_ <= segment.ack);
  if (!news) return false;
  flow.snd_wl1_ = segment.seq;
  flow.snd_wl2_ = segment.ack;
  const uint32_t window = uint32_t{segment.window} << flow.snd_scale_;
  if (window == flow.snd_wnd_) return false;
  // A window that opens ends the wait for it: the next stall starts at the shortest interval again.
  if (window > flow.snd_wnd_ && flow.flight() == 0) restart_resend(flow);
  flow.snd_wnd_ = window;
  flow.snd_wnd_max_ = std::max(flow.snd_wnd_max_, window);
  want_output(flow);
  return true;
}

void Stack::take_new_ack(Flow& flow, Seq ack) {
  const auto acked = static_cast<uint32_t>(ack - flow.snd_una_);
  const auto bytes = static_cast<uint32_t>(std::min<size_t>(acked, flow.tx_.size()));
  flow.tx_.consume(bytes);
  flow.bytes_to_guest_ += bytes;
  flow.last_data_ = now_;
  flow.snd_una_ = ack;
  flow.snd_nxt_ = later_of(flow.snd_nxt_, ack);
  flow.duplicate_acks_ = 0;
  if (flow.recovering_) {
    flow.recovering_ = ack < flow.recover_;
    flow.recovery_room_ += bytes;
  }
  restart_resend(flow);
  want_output(flow);
  if (acked > bytes) return our_fin_acknowledged(flow);
  if (flow.rst_after_flush_ && flow.tx_.empty()) end(flow, Close::kFinished, Reset::kSend);
}

void Stack::restart_resend(Flow& flow) {
  flow.backoff_ = 0;
  flow.resend_at_ = flow.flight() > 0 ? now_ + kResendFirst : Instant::never();
  rearm(flow);
}

// RFC 5681, 2: without payload, SYN or FIN, the window unchanged, something outstanding. A
// keep-alive looks the same but for its sequence number and never gets here.
void Stack::take_duplicate_ack(Flow& flow) {
  if (flow.flight() == 0) return;
  if (flow.recovering_) {
    flow.recovery_room_ += flow.mss_;  // one more segment has left the link
    want_output(flow);
    return;
  }
  if (++flow.duplicate_acks_ < kDuplicateAcks) return;
  ++stats_.fast_retransmits;
  go_back(flow);
}

void Stack::go_back(Flow& flow) {
  flow.recovering_ = true;
  flow.recover_ = flow.snd_max_;
  flow.recovery_room_ = flow.mss_;
  flow.duplicate_acks_ = 0;
  flow.snd_nxt_ = flow.snd_una_;
  want_output(flow);
}

void Stack::our_fin_acknowledged(Flow& flow) {
  flow.fin_acked_ = true;
  switch (flow.state_) {
    case State::kFinWait1:
      return enter(flow, State::kFinWait2);
    case State::kClosing:
      enter(flow, State::kTimeWait);
      break;
    case State::kLastAck:
      finish(flow);
      break;
    default:
      return;
  }
  tell_fin(flow);
}

// --- payload and FIN ---

void Stack::take_payload(Flow& flow, SegmentView& segment) {
  if (flow.guest_fin_) return acknowledge_now(flow);  // bytes after its own FIN
  const bool first = flow.rx_.allocated() == 0;
  // Nobody is left to read them when the owner waits for its last bytes to be flushed.
  const size_t taken = flow.owned_ ? flow.rx_.append(segment.payload) : segment.payload.size();
  if (taken < segment.payload.size()) {  // ring memory is used up: the rest must come again
    segment.payload = segment.payload.first(taken);
    segment.flags &= static_cast<uint8_t>(~(flag::kFin | flag::kPsh));
    acknowledge_now(flow);
  }
  if (taken == 0) return;
  flow.rcv_nxt_ += static_cast<uint32_t>(taken);
  flow.rcv_mss_ = std::max(flow.rcv_mss_, static_cast<uint32_t>(taken));
  flow.bytes_from_guest_ += taken;
  flow.last_data_ = now_;
  if (segment.has(flag::kPsh)) flow.ack_now_ = true;
  if (first) watch_idle_rings(flow);
  raise(flow, Flow::kReadableEvent);
  want_output(flow);
}

void Stack::take_fin(Flow& flow) {
  if (flow.guest_fin_) return acknowledge_now(flow);  // a second one, after the first
  flow.guest_fin_ = true;
  flow.rcv_nxt_ += 1;
  flow.rcv_edge_ = later_of(flow.rcv_edge_, flow.rcv_nxt_);
  flow.last_data_ = now_;
  acknowledge_now(flow);
  switch (flow.state_) {
    case State::kEstablished:
      enter(flow, State::kCloseWait);
      break;
    case State::kFinWait1:
      enter(flow, State::kClosing);
      break;
    case State::kFinWait2:
      enter(flow, State::kTimeWait);
      break;
    default:
      break;
  }
  if (!flow.rx_.empty()) raise(flow, Flow::kReadableEvent);
  tell_fin(flow);
}

}  // namespace sandbox::tcp
