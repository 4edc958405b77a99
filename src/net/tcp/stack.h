#pragma once
// The TCP terminator: the guest's TCP connections end here (RFC 9293, 5961, 6298, 6528, 7323 where
// they apply).
//
// It is a pure library. Packets, times and the owner's calls go in; packets and events come out. It
// has no socket, reads no clock and allocates nothing in the frame path except when a ring grows.
//
// One wake-up of the owner
//   Every wake-up ends with settle(now):
//
//     for each packet read:     stack.input(source, destination, ip_payload, now);
//     for each host socket:     stack.tx_room / tx_commit / shutdown_write / rx / consume …
//     if now >= next_deadline:  stack.on_timer(now);
//     stack.settle(now);        → events, then packets
//     arm the owner's timer for stack.next_deadline();
//
//   input() only changes state. Events are delivered by settle(), each kind at most once per flow
//   and wake-up, so many segments cost one write to the host socket; then what is to be sent goes
//   out, with one ACK per flow. The owner's calls never call back; they may be made at any time,
//   inside an event too.
//
// Life of a flow
//   guest SYN → on_syn → the owner decides, now or later: accept (SYN-ACK) | reset (RST) | drop
//   (silence; the owner has answered with ICMP itself). More SYNs of the same connection are
//   ignored meanwhile. Exactly one on_closed follows for every flow that was announced, unless the
//   owner ended it with reset, drop or abort. After on_closed, or after such a call, the Flow& is
//   dead to the owner; the stack may keep it for TIME_WAIT.
//
// Bytes from the guest
//   on_readable → rx(flow) shows all in-order bytes. consume(n) takes them; what is not consumed
//   stays, may be looked at again (the name gate holds the first bytes this way) and closes the
//   window when it grows: that is the back-pressure. on_guest_fin comes when the guest's FIN is
//   here *and* everything was consumed: shutdown(SHUT_WR) then. If the FIN arrives while bytes are
//   unconsumed, on_readable is raised and flow.guest_finished() is true.
//
// Bytes to the guest
//   tx_room(flow) gives room for readv, tx_commit(n) queues n bytes. When there was no room, or a
//   commit used all of it, on_writable follows once there is room again. shutdown_write sends a FIN
//   after the last byte. Bytes may be queued from accept() on; they leave when the guest has
//   acknowledged the SYN-ACK.
//
// Packets to the guest
//   The stack asks its PacketSink for a buffer. A sink that has none (the wire is full) returns an
//   empty span: nothing has been sent then, no sequence number advances, and the owner calls
//   settle() again when the wire is writable. Flows take turns of about 64 KiB.
//
// Design
//   * Windows promise the rings' limits, not their memory (ring.h). What was promised is
//     accepted: rcv_edge_ never moves back. On the wire the promise is rounded to the scale; at
//     the very end of a full ring the guest may see up to 127 bytes less, bytes we would still
//     take (RFC 7323, 2.4).
//   * The link neither loses nor reorders, so segments out of order are dropped with a duplicate
//     ACK, and there is neither SACK nor congestion control. Resending is go-back-N by one
//     mechanism for timeouts and three duplicate ACKs: snd_nxt_ goes back to snd_una_ and may
//     lead it by recovery_room_, one segment at first, growing with each ACK, so that a guest
//     that was merely slow is not sent everything twice.
//   * One timer resends and probes. It doubles from 200 ms to 8 s and gives up when it ran out 20
//     times, about two minutes, with nothing at all heard of the guest. Expiries are counted, not
//     time, and not while the wire is full: a VM that stood still together with this process is
//     not a lost peer.
//   * A probe (window or keep-alive) is an empty segment just left of the window; it draws an ACK
//     and never exceeds a window.
//   * Deadlines are lazy: moving a flow's deadline later costs nothing, the heap wakes us early
//     once and is corrected.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ip.h"
#include "net/tcp/deadline_heap.h"
#include "net/tcp/flow.h"
#include "net/tcp/flow_table.h"
#include "net/tcp/segment.h"

namespace sandbox::tcp {

class Owner {
 public:
  virtual ~Owner() = default;
  virtual void on_syn(Flow& flow) = 0;
  virtual void on_established(Flow&) {}
  virtual void on_readable(Flow& flow) = 0;
  virtual void on_guest_fin(Flow& flow) = 0;
  virtual void on_writable(Flow& flow) = 0;
  virtual void on_closed(Flow& flow, Close how) = 0;
  // A SYN was answered with RST because every place is taken by a flow in use. Called from input().
  virtual void on_flow_limit(const Tuple& tuple) = 0;
};

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  // Room for one IPv4 packet of exactly `size` bytes, behind whatever header the sink puts in
  // front; empty when the wire is full. Either send_packet() follows at once, or nothing.
  virtual std::span<uint8_t> packet_room(size_t size) = 0;
  // The packet in the room just given is complete. It will be delivered, or the whole wire is lost.
  virtual void send_packet() = 0;
};

struct Config {
  uint16_t mtu = 1500;                     // of an IPv4 packet towards the guest: 576…65535
  size_t max_flows = 16384;                // 1…16384
  size_t rx_limit = size_t{1} << 20;       // per flow, guest → host; a power of two
  size_t tx_limit = size_t{4} << 20;       // per flow, host → guest; a power of two
  size_t ring_memory = size_t{256} << 20;  // all rings together, beyond 4 KiB for each
  std::array<uint8_t, 16> secret{};  // random: keys sequence numbers (RFC 6528) and the flow table
};

struct Stats {
  uint64_t segments_in = 0, segments_out = 0;
  uint64_t malformed = 0, bad_checksum = 0;
  uint64_t nonsense_flags = 0;  // SYN+FIN, SYN+RST, none at all, no ACK where one must be
  uint64_t bad_endpoint = 0;    // SYN to or from an address or port that can be no peer
  uint64_t resets_without_flow = 0;
  uint64_t out_of_order = 0, retransmitted = 0, timeouts = 0, fast_retransmits = 0;
  uint64_t challenge_acks = 0;
  uint64_t flows_opened = 0, flow_limit = 0, evicted = 0;
};

class Stack {
 public:
  Stack(const Config& config, Owner& owner, PacketSink& sink);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // --- one wake-up ---
  // One TCP segment from the guest: the payload of an IPv4 packet, reassembled never (fragments are
  // the owner's to drop).
  void input(Ipv4 source, Ipv4 destination, ByteView ip_payload, Instant now);
  void on_timer(Instant now);
  void settle(Instant now);
  // When on_timer() is to be called at the latest; Instant::never() when nothing waits.
  [[nodiscard]] Instant next_deadline() const;
  // True while packets wait for the sink: call settle() when the wire is writable.
  [[nodiscard]] bool wire_wanted() const { return wire_full_; }

  // --- decisions on a flow in State::kDeciding ---
  void accept(Flow& flow);
  void reset(Flow& flow);
  void drop(Flow& flow);

  // --- bytes ---
  [[nodiscard]] ReadSpans rx(const Flow& flow) const;
  void consume(Flow& flow, size_t n);
  [[nodiscard]] WriteSpans tx_room(Flow& flow);
  void tx_commit(Flow& flow, size_t n);
  void shutdown_write(Flow& flow);

  // --- ends ---
  enum class Abort {
    kNow,         // what is queued is lost: the owner itself gives up
    kAfterFlush,  // the guest gets what the host had sent before its reset
  };
  void abort(Flow& flow, Abort when = Abort::kNow);

  // Opens a connection into the guest. on_established or on_closed follows. Null when the tuple is
  // in use or no place is free; on_flow_limit is not called.
  [[nodiscard]] Flow* connect(const Tuple& tuple, Instant now);

  [[nodiscard]] const Stats& stats() const { return stats_; }
  [[nodiscard]] size_t flow_count() const {
    return pool_.size() - free_.size();
  }  // TIME_WAIT included
  [[nodiscard]] size_t ring_memory_used() const { return budget_.used(); }
  // Aborts when the bookkeeping contradicts itself; for tests and fuzzing, it visits every flow.
  void check_invariants() const;

 private:
  enum class Reset { kSend, kSilent };
  struct Window {
    uint16_t field = 0;
    Seq edge;  // the right edge it promises
  };
  struct Next {
    uint32_t offset = 0, length = 0;  // of the next segment's payload, in tx_
    bool fin = false;
    bool last = false;     // nothing is queued behind it
    bool pending = false;  // there is something to send, be it possible now or not
  };

  // stack_input.cc
  void input_without_flow(const Tuple& tuple, const SegmentView& segment);
  void refuse(const Tuple& tuple, const SegmentView& segment);
  void input_syn(const Tuple& tuple, const SegmentView& segment, Flow* former);
  void learn_syn(Flow& flow, const SegmentView& syn);
  void input_deciding(Flow& flow, const SegmentView& segment);
  void start_over(Flow& flow, const SegmentView& syn);
  void input_syn_sent(Flow& flow, const SegmentView& segment);
  void establish(Flow& flow);
  void input_synchronized(Flow& flow, SegmentView segment);
  [[nodiscard]] bool is_syn_ack_of_open(const Flow& flow, const SegmentView& segment) const;
  void input_syn_again(Flow& flow, const SegmentView& segment);
  void input_reset(Flow& flow, const SegmentView& segment);
  void challenge(Flow& flow);
  void acknowledge_now(Flow& flow);
  bool take_sequence(Flow& flow, SegmentView& segment);
  void forget_fin(Flow& flow, SegmentView& segment);
  void refuse_sequence(Flow& flow, const SegmentView& segment);
  bool take_ack(Flow& flow, const SegmentView& segment, bool bare);
  bool take_window(Flow& flow, const SegmentView& segment);
  void take_new_ack(Flow& flow, Seq ack);
  void restart_resend(Flow& flow);
  void take_duplicate_ack(Flow& flow);
  void go_back(Flow& flow);
  void our_fin_acknowledged(Flow& flow);
  void take_payload(Flow& flow, SegmentView& segment);
  void take_fin(Flow& flow);

  // stack_output.cc
  bool send_packet(const Tuple& tuple, const SegmentSpec& spec);
  bool send_segment(Flow& flow, Seq seq, uint8_t flags, const ReadSpans& payload);
  void output(Flow& flow);
  bool output_turn(Flow& flow);
  bool send_syn(Flow& flow);
  bool send_reset(Flow& flow);
  bool send_probe(Flow& flow);
  [[nodiscard]] Next next_segment(const Flow& flow) const;
  bool send_data(Flow& flow);
  void arm_resend(Flow& flow);
  static Duration resend_delay(const Flow& flow);
  bool send_duplicates(Flow& flow);
  void send_ack_if_due(Flow& flow);
  [[nodiscard]] size_t rx_free(const Flow& flow) const;
  [[nodiscard]] Seq offered_edge(const Flow& flow) const;
  [[nodiscard]] Window window_to_send(const Flow& flow) const;
  [[nodiscard]] bool window_update_due(const Flow& flow) const;

  // stack_timers.cc
  void rearm(Flow& flow);
  void resend_timer(Flow& flow);
  bool resend_or_probe(Flow& flow);
  [[nodiscard]] Instant life_limit(const Flow& flow) const;
  void life_timer(Flow& flow);
  [[nodiscard]] Instant idle_ring_check(const Flow& flow) const;
  void watch_idle_rings(Flow& flow);
  void shrink_idle_rings(Flow& flow);

  // stack.cc
  void deliver(Flow& flow);
  void raise(Flow& flow, Flow::Event event);
  void want_output(Flow& flow) { output_.push_back(flow); }
  [[nodiscard]] bool accepts_tx(const Flow& flow) const;
  [[nodiscard]] bool tx_has_room(const Flow& flow) const;
  [[nodiscard]] bool may_grow_tx(const Flow& flow) const;
  void disown(Flow& flow);
  [[nodiscard]] Seq initial_seq(const Tuple& tuple) const;
  Flow* open(const Tuple& tuple);
  bool make_place();
  void leave_place(Flow& flow);
  void enter(Flow& flow, State state);
  void end(Flow& flow, Close how, Reset reset);
  void unlink(Flow& flow);
  void finish(Flow& flow);
  void retire_if_done(Flow& flow);
  void release_retired();
  void tell_fin(Flow& flow);
  [[nodiscard]] size_t rx_limit(const Flow& flow) const;
  [[nodiscard]] uint16_t largest_payload() const;

  Config config_;
  Owner& owner_;
  PacketSink& sink_;
  Budget budget_;
  Instant now_{};
  bool wire_full_ = false;
  Stats stats_;
  size_t places_taken_ = 0;

  std::vector<std::unique_ptr<Flow>> pool_;
  std::vector<uint16_t> free_;
  FlowTable table_;
  DeadlineHeap deadlines_;
  IntrusiveList<Flow, &Flow::event_link_> events_;
  IntrusiveList<Flow, &Flow::output_link_> output_;
  IntrusiveList<Flow, &Flow::age_link_> live_;       // least recently active first
  IntrusiveList<Flow, &Flow::age_link_> time_wait_;  // oldest first
  IntrusiveList<Flow, &Flow::age_link_> retired_;    // released by the next settle()
};

}  // namespace sandbox::tcp
