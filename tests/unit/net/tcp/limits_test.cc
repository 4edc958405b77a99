// Limits over all flows: places, ring memory, turns on the wire, timers by the thousand.

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/net/tcp/script.h"

namespace sandbox::tcp::testing {
namespace {

std::string run(const Config& config, std::string_view script) {
  return Script(config).run(script);
}

Config places(size_t n) {
  Config config;
  config.max_flows = n;
  return config;
}

TEST(TcpLimits, ASynBeyondTheLimitIsResetAndReported) {
  EXPECT_EQ(run(places(2), R"(
> S seq=0 port=1
< SA seq=0
> S seq=0 port=2
< SA seq=0
? events syn syn
> S seq=0 port=3
< RA ack=1 port=3
? events limit
? flows 2
)"),
            "");
}

TEST(TcpLimits, TheOldestIdleFlowMakesRoomAfterAMinute) {
  EXPECT_EQ(run(places(2), R"(
> S seq=0 port=1 scale=7
< SA seq=0
> A seq=1 ack=1 port=1
> S seq=0 port=2 scale=7
< SA seq=0
> A seq=1 ack=1 port=2
? events syn established syn established
+ 61s
> PA seq=1 ack=1 port=2 len=1
< A port=2 ack=2
> S seq=0 port=3
< RA port=1
< SA port=3
? events readable closed:evicted syn
? flows 2
)"),
            "");
}

TEST(TcpLimits, AFlowInTimeWaitMakesRoomBeforeAnyOther) {
  EXPECT_EQ(run(places(2), R"(
> S seq=0 port=1 scale=7
< SA seq=0
> A seq=1 ack=1 port=1
! close
< FA seq=1 ack=1
> FA seq=1 ack=2 port=1
< A seq=2 ack=2
> S seq=0 port=2
< SA port=2
> S seq=0 port=3
< SA port=3
? flows 2
)"),
            "");
}

// The flows in use and those that wait have a list each. (Only the numbers of the latest flow are
// relative to its SYN.)
TEST(TcpLimits, AFinSentAgainMakesItsFlowTheYoungestInTimeWait) {
  EXPECT_EQ(run(places(3), R"(
> S seq=0 port=1
< SA seq=0
> A seq=1 ack=1 port=1
> S seq=0 port=2
< SA seq=0
> A seq=1 ack=1 port=2
! close
< FA seq=1 ack=1
> FA seq=1 ack=2 port=2
< A seq=2 ack=2
> S seq=0 port=3
< SA seq=0
> A seq=1 ack=1 port=3
! close
< FA seq=1 ack=1
> FA seq=1 ack=2 port=3
< A seq=2 ack=2
? flows 3
> FA seq=1 port=2
< A ack=2 port=2
? flows 3
> S seq=0 port=4
< SA port=4
? flows 3
# 3 has made room, 2 still waits
> FA seq=1 ack=2 port=2
< A ack=2 port=2
> FA seq=1 ack=2 port=3
< R seq=2 port=3
? flows 3
)"),
            "");
}

TEST(TcpLimits, ConnectFailsWhenEveryPlaceIsTaken) {
  EXPECT_EQ(run(places(1), R"(
> S seq=0 port=1
< SA
! connect
)"),
            "line 4 \"! connect\": no flow");
}

// The wire takes nothing and the guest starts over and over: what has ended must not pile up.
TEST(TcpLimits, AFullWireBoundsTheFlowsThatWaitForTheirEnd) {
  std::string script = "! manual\n! wire 0\n";
  for (int i = 0; i < 100; ++i) script += "> S seq=" + std::to_string(100 * i) + "\n! reset\n";
  std::string wrong = Script(places(4)).run(script);
  EXPECT_NE(wrong.find("there is no flow"), std::string::npos) << wrong;
}

TEST(TcpLimits, WithoutRingMemoryEveryFlowStillHasFourKilobytes) {
  Config config;
  config.ring_memory = 0;
  EXPECT_EQ(run(config, R"(
! hold
> S seq=0 scale=7
< SA
> A seq=1 ack=1
> PA seq=1 ack=1 len=5000
< A ack=4097
? memory 4096
! read 4096
> PA seq=4097 ack=1 len=904
< A ack=5001
? received 4096
)"),
            "");
}

TEST(TcpLimits, AWindowThatWasOfferedStaysWhenMemoryRunsOut) {
  Config config;
  config.ring_memory = 8192;
  EXPECT_EQ(run(config, R"(
! hold
> S seq=0 scale=7
< SA ack=1 win=65535
> A seq=1 ack=1
# a part is taken; the right edge is where it was, 65535 bytes behind the SYN, rounded up
> PA seq=1 ack=1 len=60000
< A ack=8193 win=448
? memory 8192
)"),
            "");
}

TEST(TcpLimits, AnUnacknowledgedRingGrowsToFourMebibytesAndNoFurther) {
  EXPECT_EQ(run({}, R"(
> S seq=0 mss=1460 scale=14
< SA
> A seq=1 ack=1 win=65535
! write 4194304
< any
? memory 4194304
! write 1
)"),
            "line 8 \"! write 1\": no room for 1 more");
}

// Whatever the flow was doing when the guest's FIN came, and whether or not the owner closes its
// side: once the guest is silent, time ends the flow.
TEST(TcpLimits, AGuestFinNeverLeaksAFlow) {
  const std::string open = "> S seq=0 mss=1460 scale=7\n< SA\n";
  const std::string established = open + "> A seq=1 ack=1 win=502\n";
  const std::vector<std::string> beginnings = {
      "! manual\n> S seq=0\n> FA seq=1 ack=1\n< any\n! accept\n",
      open + "> FA seq=1 ack=1\n",
      open + "> FPA seq=1 ack=1 len=10\n",
      established + "> FA seq=1 ack=1\n",
      established + "> FPA seq=1 ack=1 len=10 win=0\n",
      established + "! hold\n> FPA seq=1 ack=1 len=10\n",
      established + "! write 5000\n< any\n> FA seq=1 ack=1\n",
      established + "> A seq=1 ack=1 win=0\n! write 4000\n> FA seq=1 ack=1 win=0\n",
      established + "! close\n< any\n> FA seq=1 ack=1\n",
      established + "! close\n< any\n> FA seq=1 ack=2\n",
      established + "> FA seq=100 ack=1\n",
  };
  for (const std::string& beginning : beginnings) {
    for (const char* end : {"", "! close\n", "! abort\n", "! flush\n"}) {
      const std::string script = beginning + "< any\n" + end +
                                 "< any\n+ 3h\n< any\n? flows 0\n? deadline none\n? memory 0\n";
      const std::string wrong = Script().run(script);
      // The owner of a flow that has ended already has nothing to end.
      if (wrong.find("there is no flow") != std::string::npos) continue;
      EXPECT_EQ(wrong, "") << script;
    }
  }
}

// An owner that accepts everything and counts what each flow sends.
class Many : public Owner, public PacketSink {
 public:
  static constexpr Ipv4 kServer{0x01020304}, kBlackHole{0x01020305};

  explicit Many(const Config& config) : stack_(config, *this, *this) {}

  void open(uint16_t port) {
    input(port, 0, 0, flag::kSyn);
    stack_.settle(now_);
    input(port, 1, ack_, flag::kAck);
    stack_.settle(now_);
  }
  void input(uint16_t port, uint32_t seq, uint32_t ack, uint8_t flags, Ipv4 to = kServer) {
    GuestSegment s;
    s.tuple = {Ipv4{0xc0000002}, to, port, 80};
    s.seq = seq;
    s.ack = ack;
    s.flags = flags;
    const Bytes bytes = build(s);
    stack_.input(s.tuple.guest_ip, s.tuple.host_ip, bytes, now_);
  }
  void fill(Flow& flow, size_t n) {
    while (n > 0) {
      const WriteSpans room = stack_.tx_room(flow);
      if (room.size() == 0) return;
      const size_t some = std::min(n, room.size());
      stack_.tx_commit(flow, some);
      n -= some;
    }
  }

  void on_syn(Flow& flow) override {
    flows_.push_back(&flow);
    if (flow.tuple().host_ip != kBlackHole) stack_.accept(flow);
  }
  void on_readable(Flow&) override {}
  void on_guest_fin(Flow&) override {}
  void on_writable(Flow&) override {}
  void on_closed(Flow&, Close) override { ++closed_; }
  void on_flow_limit(const Tuple&) override { ++refused_; }
  std::span<uint8_t> packet_room(size_t size) override {
    if (room_ == 0) return {};
    buffer_.resize(size);
    return buffer_;
  }
  void send_packet() override {
    if (room_ != SIZE_MAX) --room_;
    const StackSegment s = read_packet(buffer_);
    if ((s.flags & flag::kSyn) != 0) ack_ = s.seq + 1;
    if (!s.payload.empty()) order_.push_back(s.tuple.guest_port);
  }

  Instant now_{1h};
  uint32_t ack_ = 0;
  size_t room_ = SIZE_MAX, closed_ = 0, refused_ = 0;
  std::vector<Flow*> flows_;
  std::vector<uint16_t> order_;
  Bytes buffer_;
  Stack stack_;
};

TEST(TcpLimits, FlowsTakeTurnsOnANarrowWire) {
  Many many({});
  for (uint16_t port = 1; port <= 3; ++port) many.open(port);
  for (Flow* flow : many.flows_) many.fill(*flow, 4096);
  for (int i = 0; i < 6; ++i) {
    many.room_ = 1;
    many.stack_.settle(many.now_);
  }
  EXPECT_EQ(many.order_, (std::vector<uint16_t>{1, 2, 3, 1, 2, 3}));
}

TEST(TcpLimits, SixteenThousandFlowsOpenIdleAndEnd) {
  Many many({});
  for (uint32_t port = 1; port <= 16384; ++port) many.open(static_cast<uint16_t>(port));
  EXPECT_EQ(many.stack_.flow_count(), 16384u);
  many.input(20000, 0, 0, flag::kSyn);
  EXPECT_EQ(many.refused_, 1u);
  many.stack_.check_invariants();
  while (many.stack_.next_deadline() != Instant::never()) {
    many.now_ = std::max(many.now_, many.stack_.next_deadline());
    many.stack_.on_timer(many.now_);
    many.stack_.settle(many.now_);
  }
  EXPECT_EQ(many.closed_, 16384u);
  EXPECT_EQ(many.stack_.flow_count(), 0u);
  many.stack_.check_invariants();
}

// Nothing is answered by a black hole, so its flows stay undecided; the good host's is established
// before any time has passed.
TEST(TcpLimits, SixHundredBlackHolesDoNotDelayAGoodHost) {
  Many many({});
  for (uint16_t port = 1; port <= 600; ++port) {
    many.input(port, 0, 0, flag::kSyn, Many::kBlackHole);
  }
  many.stack_.settle(many.now_);
  EXPECT_EQ(many.flows_.size(), 600u);
  EXPECT_EQ(many.ack_, 0u);
  many.open(601);
  EXPECT_EQ(many.flows_.back()->state(), State::kEstablished);
  EXPECT_EQ(many.stack_.flow_count(), 601u);
}

// The host closes first, so each leaves us in TIME-WAIT; the guest has 28000 ports and needs each
// again long before the wait is over.
TEST(TcpLimits, SixtyThousandShortConnectionsToOneAddressReusePortsInTimeWait) {
  Many many({});
  uint32_t seq = 0;
  for (uint32_t i = 0; i < 60000; ++i) {
    const auto port = static_cast<uint16_t>(32768 + i % 28000);
    if (port == 32768) seq += 100000;  // a guest's numbers grow too
    many.now_ = many.now_ + 10us;
    many.input(port, seq, 0, flag::kSyn);
    many.stack_.settle(many.now_);
    ASSERT_EQ(many.flows_.size(), i + 1) << "the SYN was not taken";
    many.input(port, seq + 1, many.ack_, flag::kAck);
    many.stack_.shutdown_write(*many.flows_.back());
    many.stack_.settle(many.now_);
    many.input(port, seq + 1, many.ack_ + 1, flag::kAck | flag::kFin);
    many.stack_.settle(many.now_);
    ASSERT_EQ(many.closed_, i + 1) << "it did not end";
  }
  EXPECT_EQ(many.refused_, 0u);
  EXPECT_EQ(many.stack_.flow_count(), 16384u);
  many.stack_.check_invariants();
  many.now_ = many.now_ + 11s;
  many.stack_.on_timer(many.now_);
  many.stack_.settle(many.now_);
  EXPECT_EQ(many.stack_.flow_count(), 0u);
}

TEST(TcpLimits, SequenceNumbersOfOneTupleGrowAndOfTwoAreUnrelated) {
  Config config;
  config.secret = {1, 2, 3};
  Many many(config);
  many.open(1);
  const uint32_t first = many.ack_;
  many.open(2);
  EXPECT_GT(std::max(first - many.ack_, many.ack_ - first), 100000u);
  many.stack_.abort(*many.flows_[0]);
  many.stack_.settle(many.now_);
  many.now_ = many.now_ + 1s;
  many.open(1);
  EXPECT_EQ(many.ack_ - first, 250000u);  // one tick each 4 us
}

}  // namespace
}  // namespace sandbox::tcp::testing
