// Flows, their owner's calls, events and the order of a wake-up. Segments in: stack_input.cc;
// segments out: stack_output.cc; time: stack_timers.cc.

#include "net/tcp/stack.h"

#include <sodium.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "net/ipv4.h"
#include "net/tcp/limits.h"

namespace sandbox::tcp {
namespace {

static_assert(crypto_shorthash_KEYBYTES == 16 && crypto_shorthash_BYTES == 8);

// SipHash-2-4 of a tuple, in a domain of its own.
uint64_t keyed_hash(const std::array<uint8_t, 16>& key, uint8_t domain, const Tuple& tuple) {
  std::array<uint8_t, 13> input{domain};
  std::memcpy(&input[1], &tuple.guest_ip.value, 4);
  std::memcpy(&input[5], &tuple.host_ip.value, 4);
  std::memcpy(&input[9], &tuple.guest_port, 2);
  std::memcpy(&input[11], &tuple.host_port, 2);
  uint64_t hash;
  crypto_shorthash(reinterpret_cast<uint8_t*>(&hash), input.data(), input.size(), key.data());
  return hash;
}

constexpr uint8_t kSequenceDomain = 1, kTableDomain = 2;
constexpr size_t kMostFlows = 16384;
constexpr size_t kMostPerPlace = 3;  // indices are 16 bits wide
static_assert(kMostPerPlace * kMostFlows < UINT16_MAX);
constexpr uint16_t kSmallestMtu = 576;

Config checked(Config config) {
  SANDBOX_CHECK(config.mtu >= kSmallestMtu);
  SANDBOX_CHECK(config.max_flows >= 1 && config.max_flows <= kMostFlows);
  SANDBOX_CHECK(std::has_single_bit(config.rx_limit) && config.rx_limit >= kRingFloor);
  SANDBOX_CHECK(std::has_single_bit(config.tx_limit) && config.tx_limit >= kRingFloor);
  SANDBOX_CHECK(config.rx_limit <= size_t{UINT16_MAX + 1} << kOurScale);
  return config;
}

}  // namespace

const char* name(State state) {
  constexpr const char* kNames[] = {"DECIDING",   "SYN-SENT",   "SYN-RECEIVED", "ESTABLISHED",
                                    "FIN-WAIT-1", "FIN-WAIT-2", "CLOSE-WAIT",   "CLOSING",
                                    "LAST-ACK",   "TIME-WAIT",  "CLOSED"};
  return kNames[static_cast<size_t>(state)];
}

const char* name(Close how) {
  constexpr const char* kNames[] = {"finished", "reset",   "refused",
                                    "timeout",  "evicted", "replaced"};
  return kNames[static_cast<size_t>(how)];
}

Stack::Stack(const Config& config, Owner& owner, PacketSink& sink)
    : config_(checked(config)),
      owner_(owner),
      sink_(sink),
      budget_(config.ring_memory),
      table_(pool_, config.max_flows, keyed_hash(config.secret, kTableDomain, {})) {}

Stack::~Stack() = default;

// --- one wake-up ---

void Stack::settle(Instant now) {
  now_ = now;
  while (Flow* flow = events_.pop_front()) deliver(*flow);
  release_retired();
  wire_full_ = false;
  while (Flow* flow = output_.front()) {
    const uint64_t sent_before = stats_.segments_out;
    output(*flow);  // leaves the list when there is nothing more to send
    // A flow that used its turn goes to the end; one that the wire refused at once is first next
    // time.
    if (flow == output_.front() && stats_.segments_out != sent_before) output_.move_to_back(*flow);
    if (wire_full_) break;
  }
  release_retired();
}

void Stack::deliver(Flow& flow) {
  const uint8_t events = std::exchange(flow.events_, uint8_t{0});
  // Each call may end the owner's interest, which ends the delivery.
  const auto due = [&](Flow::Event event) { return (events & event) != 0 && flow.owned_; };
  if (due(Flow::kSynEvent)) {
    flow.announced_ = true;
    owner_.on_syn(flow);
  }
  if (due(Flow::kEstablishedEvent)) owner_.on_established(flow);
  if (due(Flow::kReadableEvent)) owner_.on_readable(flow);
  if (due(Flow::kFinEvent)) owner_.on_guest_fin(flow);
  if (due(Flow::kWritableEvent)) owner_.on_writable(flow);
  if (due(Flow::kClosedEvent)) {
    flow.owned_ = false;
    flow.rx_.reset();
    owner_.on_closed(flow, flow.how_closed_);
    retire_if_done(flow);
  }
}

void Stack::raise(Flow& flow, Flow::Event event) {
  if (!flow.owned_) return;
  flow.events_ |= event;
  events_.push_back(flow);
}

// --- decisions ---

void Stack::accept(Flow& flow) {
  if (flow.state_ != State::kDeciding) return;  // the guest gave up meanwhile; on_closed says so
  flow.snd_una_ = flow.snd_nxt_ = flow.snd_max_ = flow.iss_;
  flow.syn_wanted_ = true;
  enter(flow, State::kSynReceived);
  want_output(flow);
}

void Stack::reset(Flow& flow) {
  abort(flow, Abort::kNow);
}

void Stack::drop(Flow& flow) {
  disown(flow);
  unlink(flow);
}

// --- bytes ---

ReadSpans Stack::rx(const Flow& flow) const {
  return flow.rx_.view();
}

void Stack::consume(Flow& flow, size_t n) {
  flow.rx_.consume(n);
  if (flow.rx_.empty()) tell_fin(flow);
  if (window_update_due(flow)) want_output(flow);
}

// Room in small pieces would make small reads, so a ring gives a quarter of itself or nothing.
WriteSpans Stack::tx_room(Flow& flow) {
  if (!accepts_tx(flow)) return {};
  Ring& ring = flow.tx_;
  if (!tx_has_room(flow) && may_grow_tx(flow)) {
    const bool first = ring.allocated() == 0;
    (void)ring.reserve(first ? kRingFloor : ring.allocated() * 2);
    if (first) watch_idle_rings(flow);
  }
  if (tx_has_room(flow)) return ring.room();
  flow.tx_starved_ = true;
  return {};
}

void Stack::tx_commit(Flow& flow, size_t n) {
  if (n == 0) return;
  SANDBOX_CHECK(accepts_tx(flow));
  flow.tx_.commit(n);
  want_output(flow);
}

bool Stack::accepts_tx(const Flow& flow) const {
  return flow.owned_ && !flow.fin_wanted_ && flow.state_ != State::kDeciding &&
         flow.state_ != State::kClosed;
}

bool Stack::tx_has_room(const Flow& flow) const {
  const size_t free = flow.tx_.allocated() - flow.tx_.size();
  return free > 0 && free >= flow.tx_.allocated() / 4;
}

// A ring larger than the guest's window only holds bytes that wait.
bool Stack::may_grow_tx(const Flow& flow) const {
  const size_t size = flow.tx_.allocated();
  if (size < kRingFloor) return true;
  return size < flow.tx_.limit() && size <= flow.snd_wnd_ && !budget_.scarce();
}

void Stack::shutdown_write(Flow& flow) {
  if (!accepts_tx(flow)) return;
  flow.fin_wanted_ = true;
  if (flow.state_ == State::kEstablished) enter(flow, State::kFinWait1);
  if (flow.state_ == State::kCloseWait) enter(flow, State::kLastAck);
  want_output(flow);
}

// --- ends ---

void Stack::abort(Flow& flow, Abort when) {
  disown(flow);
  if (flow.state_ == State::kTimeWait || flow.state_ == State::kClosed) return;
  if (when == Abort::kNow || flow.tx_.empty()) {
    end(flow, Close::kFinished, Reset::kSend);
    return;
  }
  flow.rst_after_flush_ = true;
  flow.rx_.reset();
  flow.state_since_ = now_;
  flow.life_at_ = now_ + kFlush;
  rearm(flow);
}

void Stack::disown(Flow& flow) {
  flow.owned_ = false;
  flow.events_ = 0;
  events_.remove(flow);
  retire_if_done(flow);
}

Flow* Stack::connect(const Tuple& tuple, Instant now) {
  now_ = now;
  if (table_.find(tuple) != nullptr) return nullptr;
  Flow* flow = open(tuple);
  if (flow == nullptr) return nullptr;
  flow->opened_by_us_ = flow->announced_ = flow->syn_wanted_ = true;
  flow->snd_una_ = flow->snd_nxt_ = flow->snd_max_ = flow->iss_;
  enter(*flow, State::kSynSent);
  want_output(*flow);
  return flow;
}

// --- life ---

// RFC 6528: a keyed hash of the tuple plus a clock of 4 us ticks.
Seq Stack::initial_seq(const Tuple& tuple) const {
  const auto ticks = static_cast<uint64_t>(now_.since_start / 4us);
  return {static_cast<uint32_t>(keyed_hash(config_.secret, kSequenceDomain, tuple) + ticks)};
}

Flow* Stack::open(const Tuple& tuple) {
  if (!make_place()) return nullptr;
  if (free_.empty()) {
    pool_.push_back(std::make_unique<Flow>());
    pool_.back()->index_ = static_cast<uint16_t>(pool_.size() - 1);
    free_.push_back(pool_.back()->index_);
  }
  Flow& flow = *pool_[free_.back()];
  free_.pop_back();
  ++places_taken_;
  ++stats_.flows_opened;
  flow.placed_ = flow.owned_ = true;
  flow.tuple_ = tuple;
  flow.iss_ = initial_seq(tuple);
  flow.last_heard_ = flow.last_data_ = now_;
  flow.rx_.open(budget_, config_.rx_limit);
  flow.tx_.open(budget_, config_.tx_limit);
  flow.mss_ = std::min(kDefaultMss, largest_payload());
  table_.insert(flow);
  live_.push_back(flow);
  return &flow;
}

// Room for one more flow, at the cost of the one longest in TIME_WAIT, or of the one longest
// unused.
bool Stack::make_place() {
  // Ended flows whose RST waits for the wire hold no place; but a guest that only ever writes must
  // not pile them up.
  if (flow_count() >= kMostPerPlace * config_.max_flows) return false;
  if (places_taken_ < config_.max_flows) return true;
  Flow* victim = time_wait_.front();
  if (victim == nullptr) {
    victim = live_.front();
    if (victim == nullptr || now_ - victim->last_heard_ < kEvictIdle) return false;
  }
  ++stats_.evicted;
  leave_place(*victim);
  end(*victim, Close::kEvicted, victim->state_ == State::kTimeWait ? Reset::kSilent : Reset::kSend);
  return true;
}

void Stack::leave_place(Flow& flow) {
  if (flow.placed_) --places_taken_;
  flow.placed_ = false;
}

void Stack::enter(Flow& flow, State state) {
  const bool waits_already =
      flow.state_ == State::kTimeWait;  // a FIN sent again starts the wait anew
  flow.state_ = state;
  flow.state_since_ = now_;
  if (state == State::kTimeWait) {
    (waits_already ? time_wait_ : live_).remove(flow);
    time_wait_.push_back(flow);
    flow.tx_.reset();
    flow.resend_at_ = Instant::never();
  }
  flow.life_at_ = std::min(life_limit(flow), idle_ring_check(flow));
  rearm(flow);
}

// The connection ends before both sides have finished it.
void Stack::end(Flow& flow, Close how, Reset reset) {
  if (reset == Reset::kSend && flow.state_ != State::kClosed) flow.rst_wanted_ = true;
  flow.tx_.reset();
  flow.rx_.reset();
  events_.remove(flow);
  flow.events_ = 0;
  if (!flow.announced_) flow.owned_ = false;
  unlink(flow);
  flow.how_closed_ = how;
  raise(flow, Flow::kClosedEvent);
}

// Out of the table: the tuple is free for a new connection. The flow itself lives on until its RST
// is sent and its owner has been told.
void Stack::unlink(Flow& flow) {
  if (flow.state_ != State::kClosed) {  // else it may be in retired_, through the same link
    table_.erase(flow);
    (flow.state_ == State::kTimeWait ? time_wait_ : live_).remove(flow);
  }
  deadlines_.remove(flow);
  flow.ack_at_ = flow.resend_at_ = flow.life_at_ = Instant::never();
  flow.state_ = State::kClosed;
  flow.state_since_ = now_;
  flow.syn_wanted_ = flow.probe_wanted_ = flow.ack_now_ = false;
  flow.duplicates_owed_ = 0;
  if (flow.rst_wanted_) want_output(flow);
  retire_if_done(flow);
}

// Both FINs are acknowledged and we sent ours last: nothing to wait for. The owner may still have
// bytes to take, for which it has the time of a half-closed flow.
void Stack::finish(Flow& flow) {
  unlink(flow);
  flow.tx_.reset();
  if (!flow.owned_) return;
  flow.life_at_ = life_limit(flow);
  rearm(flow);
}

// Nobody needs it any more. It stays in one piece until settle() releases it, so that callers up
// the stack may look at it.
void Stack::retire_if_done(Flow& flow) {
  if (flow.state_ != State::kClosed || flow.owned_ || flow.rst_wanted_) return;
  retired_.push_back(flow);
}

void Stack::release_retired() {
  while (Flow* flow = retired_.pop_front()) {
    const uint16_t index = flow->index_;
    leave_place(*flow);
    deadlines_.remove(*flow);
    events_.remove(*flow);
    output_.remove(*flow);
    std::destroy_at(flow);
    std::construct_at(flow);
    flow->index_ = index;
    free_.push_back(index);
  }
}

// The guest's FIN is told when all before it was consumed; the end of the flow after that.
void Stack::tell_fin(Flow& flow) {
  if (!flow.guest_fin_ || !flow.rx_.empty()) return;
  if (!flow.fin_told_) raise(flow, Flow::kFinEvent);
  flow.fin_told_ = true;
  const bool over = flow.state_ == State::kTimeWait || flow.state_ == State::kClosed;
  if (!over || (flow.events_ & Flow::kClosedEvent) != 0) return;
  flow.how_closed_ = Close::kFinished;
  raise(flow, Flow::kClosedEvent);
}

size_t Stack::rx_limit(const Flow& flow) const {
  return flow.scaling_ ? config_.rx_limit : std::min(config_.rx_limit, size_t{UINT16_MAX});
}

uint16_t Stack::largest_payload() const {
  return static_cast<uint16_t>(config_.mtu - net::kIpv4Header - kTcpHeader);
}

void Stack::check_invariants() const {
  size_t memory = 0, in_table = 0, waiting = 0, places = 0;
  for (const auto& flow : pool_) {
    memory += flow->rx_.allocated() + flow->tx_.allocated();
    places += flow->placed_ ? 1 : 0;
    if (flow->state_ == State::kClosed) continue;
    ++in_table;
    waiting += flow->state_ == State::kTimeWait ? 1 : 0;
    SANDBOX_CHECK(table_.find(flow->tuple_) == flow.get());
    SANDBOX_CHECK(flow->snd_una_ <= flow->snd_nxt_ && flow->snd_nxt_ <= flow->snd_max_);
    SANDBOX_CHECK(flow->rcv_nxt_ <= flow->rcv_edge_ || flow->state_ <= State::kSynReceived);
    SANDBOX_CHECK(flow->rx_.size() <= rx_limit(*flow));
    if (!flow->guest_fin_ && flow->owned_ && flow->synchronized()) {
      SANDBOX_CHECK(static_cast<size_t>(flow->rcv_edge_ - flow->rcv_nxt_) <= flow->rx_.free());
    }
    SANDBOX_CHECK(flow->life_at_ != Instant::never() && flow->heap_key_ <= flow->life_at_);
    if (flow->synchronized() && flow->flight() > 0) {
      SANDBOX_CHECK(flow->resend_at_ != Instant::never() && flow->heap_key_ <= flow->resend_at_);
      SANDBOX_CHECK(flow->flight() <= flow->tx_.size() + 1);
      SANDBOX_CHECK(flow->flight() <= flow->snd_wnd_max_);
    }
  }
  SANDBOX_CHECK(in_table == table_.size());
  SANDBOX_CHECK(waiting == time_wait_.size() && in_table - waiting == live_.size());
  SANDBOX_CHECK(places == places_taken_ && places <= config_.max_flows);
  SANDBOX_CHECK(memory == budget_.used());
  SANDBOX_CHECK(deadlines_.consistent());
}

}  // namespace sandbox::tcp
