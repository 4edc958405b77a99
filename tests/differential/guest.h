#pragma once
// What a guest knows of one subject: which numbers both ends have reached. Turns the steps of a
// script into segments, and what the subject says into an Answer that two subjects can be compared
// by.

#include <vector>

#include "differential/script.h"
#include "differential/subject.h"

namespace sandbox::tcp::differential {

// What the guest offers while it fills the subject's window.
constexpr uint16_t kFillWindow = 30'000;

// The flags and numbers of a RST or SYN-ACK, relative to what both ends have reached before it.
struct Sign {
  uint8_t flags = 0;
  int32_t seq = 0, seq_acked = 0;  // from the end of what was sent, of what was acknowledged
  int32_t ack = 0;
  bool mss = false, scale = false;
  uint16_t mss_value = 0;
  friend bool operator==(const Sign&, const Sign&) = default;
};

enum class Window : uint8_t { kClosed, kOpen };

// One step's answer without what need not be equal: how the bytes were cut into segments, how many
// ACKs said the same, how large an open window is.
struct Answer {
  std::vector<Sign> resets;    // one for each segment that drew it
  std::vector<Sign> syn_acks;  // as above
  uint32_t spoken = 0;         // other segments
  int32_t acknowledged = 0;    // how far the subject's ACK moved
  int32_t sent = 0;            // the end of all it has sent, from its first number; a FIN counts
  bool fin = false;            // a FIN, for the first time or again
  bool resent = false;         // payload or FIN that had been sent before
  bool intact = true;          // its payload was what the host wrote
  Window window = Window::kOpen;
  Stage stage = Stage::kNone;
  uint64_t delivered = 0;  // bytes the host's program has read in this step
  bool delivered_right = true;
};

class Guest {
 public:
  Guest(Tuple tuple, Seq first);

  Outgoing make(const SegmentStep& step);
  // What fills the window that is left.
  std::vector<Outgoing> fill(uint16_t window);
  // A bare ACK with the newest number there is, as a guest sends when its window moves.
  Outgoing newest_ack(uint16_t window, Seq ack);
  // What was sent beyond a hole and is now wanted: of the next `wanted` numbers.
  std::vector<Outgoing> missing(uint32_t wanted);

  void begin_step();
  void hear(const HeardPacket& packet);
  void see(const HostView& view);
  [[nodiscard]] const Answer& answer() const { return answer_; }
  [[nodiscard]] const std::vector<Heard>& heard() const { return heard_; }

  [[nodiscard]] Seq first() const { return first_; }
  [[nodiscard]] Seq next() const { return next_; }
  [[nodiscard]] Seq subject_first() const { return subject_first_; }
  [[nodiscard]] Seq sent() const { return sent_; }
  [[nodiscard]] Seq acked() const { return acked_; }
  [[nodiscard]] uint16_t window() const { return window_; }
  [[nodiscard]] Seq edge() const { return edge_; }
  [[nodiscard]] bool syn_acked() const { return syn_acked_; }
  [[nodiscard]] uint64_t unread() const { return static_cast<uint64_t>(next_ - stream_) - read_; }

 private:
  void hear_syn_ack(const Heard& heard);
  void remember(const Outgoing& segment);

  Tuple tuple_;
  Seq first_;                 // our initial number
  Seq next_, edge_;           // what it acknowledged, and the end of its window
  Seq syn_;                   // our last SYN
  Seq stream_;                // our first byte of payload
  Seq subject_first_, sent_;  // its initial number, and the end of what it sent
  Seq acked_;                 // what we acknowledged
  Seq sent_before_, next_before_;
  bool syn_acked_ = false;
  uint8_t scale_ = 0;  // of its windows
  uint32_t connection_ = 0;
  uint64_t read_ = 0;  // by its program
  Seq newest_;         // the end of what we sent inside the window
  uint16_t window_ = 0;
  std::vector<Outgoing> ahead_;
  std::vector<Heard> heard_;
  Answer answer_;
};

}  // namespace sandbox::tcp::differential
