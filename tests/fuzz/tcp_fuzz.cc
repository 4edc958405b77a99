// fuzz-libs: sandbox_tcp
// Drives the TCP terminator with a guest that may send anything and an owner that may do anything
// it is allowed to, over a wire that may refuse. Numbers are taken relative to what the stack last
// said, so that states deep inside are reached.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "../unit/net/tcp/packet.h"
#include "base/check.h"
#include "net/tcp/stack.h"

namespace sandbox::tcp::testing {
namespace {

class Input {
 public:
  explicit Input(ByteView bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t b = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return b;
  }
  uint16_t word() { return static_cast<uint16_t>(byte() << 8 | byte()); }

 private:
  ByteView bytes_;
};

class Driver : public Owner, public PacketSink {
 public:
  explicit Driver(Input input) : input_(input), stack_(config(), *this, *this) {}

  void run() {
    for (int steps = 0; !input_.empty() && steps < 2000; ++steps) {
      step();
      stack_.check_invariants();
    }
    close_all();
  }

 private:
  // What the guest knows of one tuple: where it and the stack are, and how far it ever let the
  // stack send.
  struct Peer {
    uint32_t seq = 0xffffff00, ack = 0;
    std::vector<Seq> edges;
    int shift = 14;  // never less than what the stack makes of the guest's offer
  };
  static constexpr size_t kPeers = 4;

  static Config config() {
    Config c;
    c.max_flows = 3;  // fewer than tuples, so that limits are met
    c.rx_limit = 16384;
    c.tx_limit = 16384;
    c.ring_memory = 40000;
    return c;
  }
  static Tuple tuple(size_t i) {
    return {Ipv4{0xc0000002}, Ipv4{0x01020304}, static_cast<uint16_t>(1000 + i), 80};
  }

  void step() {
    const uint8_t op = input_.byte();
    switch (op % 8) {
      case 0:
      case 1:
      case 2:
        return send(op / 8 % kPeers);
      case 3:
        return act();
      case 4:
        return pass();
      case 5:
        wire_ = op & 8 ? SIZE_MAX : op / 16;
        return;
      case 6:
        return raw();
      default:
        return stack_.settle(now_);
    }
  }

  // A segment near what is expected: each number off by a little, or by a lot.
  void send(size_t which) {
    Peer& peer = peers_[which];
    const uint8_t shape = input_.byte();
    GuestSegment s;
    s.tuple = tuple(which);
    constexpr uint8_t kFlags[] = {flag::kAck,
                                  flag::kAck | flag::kPsh,
                                  flag::kSyn,
                                  flag::kAck | flag::kFin,
                                  flag::kRst,
                                  flag::kSyn | flag::kAck,
                                  flag::kRst | flag::kAck,
                                  0};
    s.flags = kFlags[shape % 8];
    if (shape & 8) s.seq = static_cast<uint32_t>(static_cast<int16_t>(input_.word()));
    if (shape & 16) s.ack = static_cast<uint32_t>(static_cast<int16_t>(input_.word()));
    s.seq += peer.seq;
    s.ack += peer.ack;
    s.window = shape & 32 ? input_.word() : 0xffff;
    if (shape & 64) s.payload.assign(input_.word() % 4000, 'x');
    if (s.flags & flag::kSyn) add_options(s, shape);
    if (s.flags == 0) s.flags = input_.byte();
    note_window(peer, s);
    const Bytes bytes = build(s);
    stack_.input(s.tuple.guest_ip, s.tuple.host_ip, bytes, now_);
  }

  void add_options(GuestSegment& s, uint8_t shape) {
    s.options = {2, 4, 5, 0xb4};
    if (shape & 128) s.options.insert(s.options.end(), {1, 3, 3, input_.byte()});
  }

  void note_window(Peer& peer, const GuestSegment& s) {
    peer.edges.push_back(Seq{s.ack} + (uint32_t{s.window} << peer.shift));
  }
  static bool allowed(const Peer& peer, Seq end) {
    return std::any_of(peer.edges.begin(), peer.edges.end(), [&](Seq e) { return end <= e; });
  }

  void raw() {
    Bytes bytes(input_.byte() % 80);
    for (uint8_t& b : bytes) b = input_.byte();
    stack_.input(tuple(0).guest_ip, tuple(0).host_ip, bytes, now_);
  }

  void act() {
    const uint8_t op = input_.byte();
    if (op % 16 == 15) {
      if (Flow* flow = stack_.connect(tuple(op / 16 % kPeers), now_)) flows_.push_back(flow);
      return;
    }
    if (flows_.empty()) return;
    Flow& flow = *flows_[op / 16 % flows_.size()];
    switch (op % 16) {
      case 0:
      case 1:
      case 2:
        return stack_.accept(flow);
      case 3:
        return end(flow, [&] { stack_.reset(flow); });
      case 4:
        return end(flow, [&] { stack_.drop(flow); });
      case 5:
        return end(flow, [&] { stack_.abort(flow); });
      case 6:
        return end(flow, [&] { stack_.abort(flow, Stack::Abort::kAfterFlush); });
      case 7:
        return stack_.shutdown_write(flow);
      case 8:
      case 9:
      case 10:
        return stack_.consume(flow, stack_.rx(flow).size() / (1 + op / 128));
      default: {
        const size_t room = stack_.tx_room(flow).size();
        return stack_.tx_commit(flow, std::min<size_t>(room, input_.word()));
      }
    }
  }

  template <class F>
  void end(Flow& flow, F call) {
    flows_.erase(std::find(flows_.begin(), flows_.end(), &flow));
    call();
  }

  void pass() {
    const uint8_t op = input_.byte();
    now_ = now_ + std::chrono::milliseconds(1 << (op % 24));
    stack_.on_timer(now_);
    if (op & 128) stack_.settle(now_);
  }

  // Whatever happened: once the owner lets go and time passes, nothing is left.
  void close_all() {
    wire_ = SIZE_MAX;
    stack_.settle(now_);
    for (Flow* flow : std::exchange(flows_, {})) stack_.abort(*flow);
    for (int i = 0; i < 10000 && stack_.next_deadline() != Instant::never(); ++i) {
      now_ = std::max(now_, stack_.next_deadline());
      stack_.on_timer(now_);
      stack_.settle(now_);
    }
    stack_.settle(now_);
    stack_.check_invariants();
    SANDBOX_CHECK(flows_.empty());
    SANDBOX_CHECK(stack_.flow_count() == 0);
    SANDBOX_CHECK(stack_.ring_memory_used() == 0);
  }

  void on_syn(Flow& flow) override {
    SANDBOX_CHECK(flow.context() == nullptr);
    flow.set_context(this);
    flows_.push_back(&flow);
  }
  void on_readable(Flow& flow) override { known(flow); }
  void on_established(Flow& flow) override { known(flow); }
  void on_guest_fin(Flow& flow) override {
    known(flow);
    SANDBOX_CHECK(stack_.rx(flow).size() == 0 && flow.guest_finished());
  }
  void on_writable(Flow& flow) override {
    known(flow);
    (void)stack_.tx_room(flow);  // there may be none again: the driver acts between events too
  }
  void on_closed(Flow& flow, Close) override {
    known(flow);
    flows_.erase(std::find(flows_.begin(), flows_.end(), &flow));
  }
  void on_flow_limit(const Tuple&) override {}
  void known(Flow& flow) { SANDBOX_CHECK(std::count(flows_.begin(), flows_.end(), &flow) == 1); }

  std::span<uint8_t> packet_room(size_t size) override {
    if (wire_ == 0) return {};
    buffer_.assign(size, 0);
    return buffer_;
  }

  void send_packet() override {
    if (wire_ != SIZE_MAX) --wire_;
    const StackSegment s = read_packet(buffer_);
    SANDBOX_CHECK(s.intact);
    if (s.tuple.guest_port < 1000 || s.tuple.guest_port >= 1000 + kPeers) return;
    Peer& peer = peers_[s.tuple.guest_port - 1000u];
    const uint32_t length = static_cast<uint32_t>(s.payload.size()) + (s.flags & flag::kFin);
    SANDBOX_CHECK(length == 0 || (s.flags & flag::kSyn) != 0 || allowed(peer, Seq{s.seq} + length));
    if ((s.flags & flag::kRst) == 0) {
      peer.ack = s.seq + length + ((s.flags & flag::kSyn) ? 1 : 0);
      if (s.flags & flag::kAck) peer.seq = s.ack;
    }
  }

  Input input_;
  Instant now_{1h};
  size_t wire_ = SIZE_MAX;
  Bytes buffer_;
  std::array<Peer, kPeers> peers_;
  std::vector<Flow*> flows_;
  Stack stack_;
};

}  // namespace
}  // namespace sandbox::tcp::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sandbox::tcp::testing::Driver(sandbox::tcp::testing::Input({data, size})).run();
  return 0;
}
