#pragma once
// One TCP connection of the guest. The owner of the stack reads it through the accessors and
// changes it only through Stack; the rest is the stack's. Theory of operation: stack.h.

#include <cstdint>

#include "base/clock.h"
#include "net/tcp/intrusive_list.h"
#include "net/tcp/ring.h"
#include "net/tcp/segment.h"
#include "net/tcp/seq.h"

namespace sandbox::tcp {

// RFC 9293, 3.3.2, with LISTEN replaced by the decision at SYN.
enum class State : uint8_t {
  kDeciding,     // the guest's SYN is here, nothing was answered yet
  kSynSent,      // we opened, our SYN is out
  kSynReceived,  // our SYN-ACK is out
  kEstablished,
  kFinWait1,   // our FIN is queued or out, the guest still speaks
  kFinWait2,   // our FIN is acknowledged, the guest still speaks
  kCloseWait,  // the guest's FIN is here, we still speak
  kClosing,    // both FINs are out, ours is not acknowledged
  kLastAck,    // the guest's FIN came first, ours is queued or out
  kTimeWait,
  kClosed,  // no longer in the table
};

const char* name(State state);

// How a flow ended, as told in on_closed.
enum class Close : uint8_t {
  kFinished,  // both sides closed and acknowledged
  kReset,     // the guest sent a RST: abort the host side
  kRefused,   // the guest refused a connection we opened
  kTimeout,   // the guest fell silent, or a half-open or half-closed flow was idle too long
  kEvicted,   // the oldest idle flow made room for a new one
  kReplaced,  // the guest gave up before it was established and began anew on the same ports
};

const char* name(Close how);

class Flow {
 public:
  [[nodiscard]] const Tuple& tuple() const { return tuple_; }
  [[nodiscard]] State state() const { return state_; }
  // True from the guest's FIN on: what rx() shows is all there will ever be.
  [[nodiscard]] bool guest_finished() const { return guest_fin_; }
  [[nodiscard]] bool opened_by_us() const { return opened_by_us_; }
  // Sequence number of the guest's SYN: an ICMP error about it must quote it (RFC 5927, 4.1).
  [[nodiscard]] uint32_t guest_initial_seq() const { return irs_.value; }
  // Payload bytes taken from the guest in order, and payload bytes the guest acknowledged.
  [[nodiscard]] uint64_t bytes_from_guest() const { return bytes_from_guest_; }
  [[nodiscard]] uint64_t bytes_to_guest() const { return bytes_to_guest_; }
  // Bytes of ours the guest has not acknowledged yet.
  [[nodiscard]] size_t unacknowledged() const { return tx_.size(); }

  // The owner's own object for this flow; null when the flow is announced.
  [[nodiscard]] void* context() const { return context_; }
  void set_context(void* context) { context_ = context; }

  Flow() = default;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

 private:
  friend class Stack;
  friend class FlowTable;
  friend class DeadlineHeap;

  enum Event : uint8_t {
    kSynEvent = 1,
    kEstablishedEvent = 2,
    kReadableEvent = 4,
    kFinEvent = 8,
    kWritableEvent = 16,
    kClosedEvent = 32,
  };

  // Sequence space that is out and not acknowledged, FIN and SYN included.
  [[nodiscard]] uint32_t flight() const { return static_cast<uint32_t>(snd_max_ - snd_una_); }
  [[nodiscard]] bool synchronized() const {
    return state_ >= State::kEstablished && state_ <= State::kTimeWait;
  }

  Tuple tuple_;
  State state_ = State::kClosed;
  uint8_t events_ = 0;                   // what the owner is to be told
  Close how_closed_ = Close::kFinished;  // valid with kClosedEvent
  bool placed_ = false;                  // counts towards max_flows
  bool owned_ = false;                   // the owner may still be called about it
  bool announced_ = false;               // the owner has seen it
  bool opened_by_us_ = false;
  bool guest_fin_ = false;   // its FIN was taken
  bool fin_told_ = false;    // kFinEvent was raised
  bool fin_wanted_ = false;  // our FIN follows the last byte of tx_
  bool fin_acked_ = false;
  bool rst_wanted_ = false;       // a RST goes out, then the flow is gone
  bool rst_after_flush_ = false;  // the same once tx_ is acknowledged
  bool syn_wanted_ = false;       // (re)send SYN or SYN-ACK
  bool probe_wanted_ = false;     // send a probe: window or keep-alive
  bool push_small_ = false;       // the persist timer lets less than a useful segment go
  bool ack_now_ = false;
  bool tx_starved_ = false;  // the owner had bytes and no room
  bool scaling_ = false;     // both SYNs carried a window scale
  bool recovering_ = false;  // resending what lies before recover_
  uint8_t snd_scale_ = 0;
  uint8_t duplicate_acks_ = 0;   // in a row, received
  uint8_t duplicates_owed_ = 0;  // duplicate ACKs to send
  uint8_t backoff_ = 0;          // doublings of the retransmission timer
  uint8_t unanswered_ = 0;       // expiries of that timer since the guest was heard
  uint8_t keepalives_ = 0;       // unanswered
  uint8_t challenges_ = 0;       // sent in the second that began at challenge_start_

  // Send side, names as in RFC 9293, 3.3.1. tx_ begins at snd_una_ once the SYN is acknowledged.
  Seq iss_, snd_una_, snd_nxt_,
      snd_max_;  // snd_nxt_ goes back to snd_una_ to resend; snd_max_ never does
  Seq snd_wl1_, snd_wl2_, recover_;
  uint32_t snd_wnd_ = 0, snd_wnd_max_ = 0;
  uint32_t recovery_room_ = 0;  // while recovering: bytes after snd_una_ that may be out
  uint16_t mss_ = kDefaultMss;  // largest payload towards the guest
  Ring tx_;

  // Receive side. rx_ holds the unconsumed bytes that end at rcv_nxt_ (less one for a FIN).
  Seq irs_, rcv_nxt_, rcv_edge_,
      rcv_acked_;             // rcv_edge_: right edge promised; rcv_acked_: last ACK sent
  uint32_t rcv_mss_ = 0;      // largest payload seen
  uint16_t wire_window_ = 0;  // window field of the last segment sent
  Ring rx_;

  // Timers. deadline_ is the earliest of the three; the heap may hold an earlier one, which then
  // only wakes us.
  Instant ack_at_ = Instant::never(), resend_at_ = Instant::never(), life_at_ = Instant::never();
  Instant last_heard_{}, last_data_{}, state_since_{}, challenge_start_{};
  Instant heap_key_ = Instant::never();
  uint32_t heap_index_ = UINT32_MAX;

  uint64_t bytes_from_guest_ = 0, bytes_to_guest_ = 0;
  void* context_ = nullptr;
  uint16_t index_ = 0;  // in the pool

  Link<Flow> event_link_, output_link_, age_link_;
};

}  // namespace sandbox::tcp
