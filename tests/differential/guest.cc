#include "differential/guest.h"

#include <algorithm>

namespace sandbox::tcp::differential {
namespace {

constexpr uint32_t kFullSegment = 1460;
constexpr size_t kMostRemembered = 32;

// Its bytes follow from its number, so that bytes delivered at the wrong place are noticed.
Bytes payload_at(Seq seq, uint32_t length) {
  Bytes bytes(length);
  for (uint32_t i = 0; i < length; ++i) bytes[i] = guest_byte((seq + i).value);
  return bytes;
}

}  // namespace

Guest::Guest(Tuple tuple, Seq first)
    : tuple_(tuple),
      first_(first),
      next_(first),
      edge_(first),
      stream_(first + 1),
      newest_(first) {}

Outgoing Guest::make(const SegmentStep& step) {
  const Seq from = step.seq_from == SeqFrom::kNext   ? next_
                   : step.seq_from == SeqFrom::kEdge ? edge_
                                                     : first_;
  const Seq ack_from = step.ack_from == AckFrom::kSent    ? sent_
                       : step.ack_from == AckFrom::kAcked ? acked_
                                                          : Seq{};
  Outgoing out{.tuple = tuple_,
               .seq = {from.value + static_cast<uint32_t>(step.seq)},
               .ack = {ack_from.value + static_cast<uint32_t>(step.ack)},
               .flags = step.flags,
               .window = step.window,
               .options = step.options,
               .damage = step.damage};
  const bool syn = (step.flags & flag::kSyn) != 0;
  out.payload = payload_at(out.seq + (syn ? 1 : 0), step.length);
  if ((step.flags & flag::kAck) == 0) out.ack = {};
  const bool plain = (step.flags & (flag::kSyn | flag::kRst | flag::kAck)) == flag::kAck;
  const bool taken = plain && step.damage == Damage::kNone;
  if (taken && out.ack > acked_ && out.ack <= sent_) acked_ = out.ack;
  if (syn && (step.flags & flag::kAck) == 0) syn_ = out.seq;
  window_ = step.window;
  if (step.damage == Damage::kNone) remember(out);
  return out;
}

// A segment after a hole: one end keeps it, the other does not.
void Guest::remember(const Outgoing& segment) {
  const uint8_t unusual = flag::kSyn | flag::kRst;
  const bool fin = (segment.flags & flag::kFin) != 0;
  if ((segment.flags & unusual) == 0 && segment.seq <= edge_) {
    const Seq end = segment.seq + static_cast<uint32_t>(segment.payload.size()) + (fin ? 1 : 0);
    newest_ = later_of(newest_, end < edge_ ? end : edge_);
  }
  if ((segment.flags & unusual) != 0 || (segment.flags & flag::kAck) == 0) return;
  if (segment.payload.empty() && !fin) return;
  const bool after_hole = segment.seq > next_ && segment.seq <= edge_;
  if (after_hole && ahead_.size() < kMostRemembered) ahead_.push_back(segment);
}

std::vector<Outgoing> Guest::fill(uint16_t window) {
  std::vector<Outgoing> segments;
  for (Seq at = next_; at < edge_;) {
    const auto length = std::min(kFullSegment, static_cast<uint32_t>(edge_ - at));
    segments.push_back({.tuple = tuple_,
                        .seq = at,
                        .ack = sent_,
                        .flags = flag::kAck,
                        .window = window,
                        .payload = payload_at(at, length)});
    at += length;
  }
  acked_ = sent_;
  window_ = window;
  return segments;
}

Outgoing Guest::newest_ack(uint16_t window, Seq ack) {
  acked_ = later_of(acked_, ack);
  window_ = window;
  return {.tuple = tuple_,
          .seq = later_of(next_, newest_),
          .ack = ack,
          .flags = flag::kAck,
          .window = window};
}

std::vector<Outgoing> Guest::missing(uint32_t wanted) {
  std::vector<Outgoing> segments;
  for (const Outgoing& segment : ahead_) {
    const Seq end = segment.seq + static_cast<uint32_t>(segment.payload.size()) +
                    ((segment.flags & flag::kFin) != 0 ? 1 : 0);
    if (segment.seq > next_ || end <= next_) continue;
    Outgoing again = segment;
    const auto excess = end - (next_ + wanted);
    if (excess > 0) {
      const bool fin = (again.flags & flag::kFin) != 0;
      const auto bytes =
          std::min(static_cast<size_t>(excess - (fin ? 1 : 0)), again.payload.size());
      again.payload.resize(again.payload.size() - bytes);
      again.flags &= static_cast<uint8_t>(~flag::kFin);
    }
    again.ack = acked_;
    again.window = window_;
    segments.push_back(again);
  }
  return segments;
}

void Guest::begin_step() {
  const Window window = answer_.window;
  answer_ = {};
  answer_.window = window;
  answer_.sent = sent_ - subject_first_;
  heard_.clear();
  sent_before_ = sent_;
  next_before_ = next_;
}

void Guest::hear(const HeardPacket& packet) {
  const Heard& heard = packet.heard;
  heard_.push_back(heard);
  if (heard.has(flag::kRst)) {
    const bool acks = heard.has(flag::kAck);
    answer_.resets.push_back({.flags = heard.flags,
                              .seq = heard.seq - sent_,
                              .seq_acked = heard.seq - acked_,
                              .ack = acks ? heard.ack - next_ : 0});
    return;
  }
  if (heard.has(flag::kSyn)) return hear_syn_ack(heard);
  ++answer_.spoken;
  answer_.fin = answer_.fin || heard.has(flag::kFin);
  answer_.resent = answer_.resent || (heard.end() > heard.seq && heard.seq < sent_before_);
  for (size_t i = 0; i < packet.payload.size(); ++i) {
    const auto offset = static_cast<uint32_t>(heard.seq - subject_first_) - 1 + i;
    if (packet.payload[i] != host_byte(offset)) answer_.intact = false;
  }
  sent_ = later_of(sent_, heard.end());
  answer_.sent = sent_ - subject_first_;
  next_ = later_of(next_, heard.ack);
  answer_.acknowledged = next_ - next_before_;
  edge_ = later_of(edge_, heard.ack + (uint32_t{heard.window} << scale_));
  answer_.window = heard.window == 0 ? Window::kClosed : Window::kOpen;
}

void Guest::hear_syn_ack(const Heard& heard) {
  answer_.syn_acks.push_back({.flags = heard.flags,
                              .ack = heard.ack - syn_,
                              .mss = heard.options.mss.has_value(),
                              .scale = heard.options.scale.has_value(),
                              .mss_value = heard.options.mss.value_or(0)});
  answer_.window = heard.window == 0 ? Window::kClosed : Window::kOpen;
  if (syn_acked_ && heard.seq == subject_first_ && heard.ack == stream_) return;  // the same again
  syn_acked_ = true;
  scale_ = heard.options.scale.value_or(0);
  subject_first_ = heard.seq;
  sent_ = sent_before_ = heard.seq + 1;
  answer_.sent = 1;
  acked_ = heard.seq;
  next_ = next_before_ = stream_ = newest_ = heard.ack;
  edge_ = heard.ack + heard.window;
  ahead_.clear();
}

void Guest::see(const HostView& view) {
  if (view.connection != connection_) read_ = 0;
  connection_ = view.connection;
  for (const uint8_t byte : view.received) {
    if (byte != guest_byte((stream_ + static_cast<uint32_t>(read_)).value)) {
      answer_.delivered_right = false;
    }
    ++read_;
  }
  answer_.delivered = view.received.size();
  answer_.stage = view.stage;
}

}  // namespace sandbox::tcp::differential
