// Whole transfers both ways between the stack and a simple guest over a link that loses, doubles,
// delays and refuses packets, compared byte by byte. Everything random comes from the seed of the
// case.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "net/tcp/stack.h"
#include "unit/net/tcp/packet.h"

namespace sandbox::tcp::testing {
namespace {

struct Link {
  const char* name;
  double loss = 0, duplicate = 0, reorder = 0;
  double refuse = 0;         // chance that the wire takes no packet
  bool slow_reader = false;  // the guest reads in fits, its window closes
  bool slow_host = false;    // the host takes and gives little at a time
  uint16_t mtu = 1500;
  size_t up = 300'000, down = 300'000;  // bytes guest → host, host → guest
  size_t ring_memory = size_t{256} << 20;
};

uint8_t up_byte(size_t i) {
  return static_cast<uint8_t>(i * 7 + (i >> 8) * 3);
}
uint8_t down_byte(size_t i) {
  return static_cast<uint8_t>(i * 13 + (i >> 7));
}

// The guest: a go-back-N sender and an in-order receiver, no more than RFC 9293 asks for.
class Guest {
 public:
  Guest(const Link& link, std::mt19937& random) : link_(link), random_(random) {}

  bool finished() const { return established_ && una_ == fin_end() && got_fin_; }
  bool correct() const { return correct_; }
  size_t received() const { return rcv_nxt_ - rcv_first_ - 1 - (got_fin_ ? 1 : 0); }

  // Segments to send now.
  std::vector<Bytes> tick(Instant now) {
    std::vector<Bytes> out;
    if (now >= resend_at_) {
      nxt_ = established_ ? una_ : kFirst;
      resend_at_ = now + backoff_;
      backoff_ = std::min<Duration>(backoff_ * 2, 4s);
      probe_ = true;
    }
    if (!established_) {
      if (nxt_ == kFirst) {
        out.push_back(segment(kFirst, flag::kSyn, 0, true));
        nxt_ = kFirst + 1;
      }
      return out;
    }
    while (nxt_ != fin_end()) {
      const uint32_t data_left = fin_end() - 1 - nxt_;
      const uint32_t room = edge_ - nxt_ > (1u << 30) ? 0 : edge_ - nxt_;
      uint32_t n = std::min({data_left, room, static_cast<uint32_t>(mss_)});
      if (n == 0 && data_left > 0 && probe_) n = 1;  // a window probe
      probe_ = false;
      if (n == 0 && data_left > 0) break;
      const uint8_t fin = n == data_left ? flag::kFin : 0;
      const uint8_t push = random_() % 8 == 0 || fin != 0 ? flag::kPsh : 0;
      out.push_back(segment(nxt_, flag::kAck | fin | push, n, false));
      nxt_ += n + (fin != 0 ? 1 : 0);
      ack_wanted_ = 0;
    }
    for (; ack_wanted_ > 0; --ack_wanted_) out.push_back(segment(nxt_, flag::kAck, 0, false));
    if (link_.slow_reader && window_ == 0 && random_() % 20 == 0) {
      window_ = kWindow;
      out.push_back(segment(nxt_, flag::kAck, 0, false));
    }
    return out;
  }

  void take(ByteView packet, Instant now) {
    const StackSegment s = read_packet(packet);
    // A doubled packet that arrives after the end is refused, rightly.
    if (finished() && (s.flags & flag::kRst) != 0) return;
    correct_ = correct_ && s.intact && (s.flags & flag::kRst) == 0;
    if ((s.flags & flag::kSyn) != 0) {
      if (!established_) {
        established_ = true;
        rcv_first_ = s.seq;
        rcv_nxt_ = s.seq + 1;
        una_ = nxt_ = kFirst + 1;
        edge_ = una_ + s.window;
        mss_ = std::min<int>(s.mss, link_.mtu - 40);
        backoff_ = 300ms;
        resend_at_ = now + backoff_;
      }
      ack_wanted_ = std::max(ack_wanted_, 1);
      return;
    }
    if (!established_) return;
    take_ack(s, now);
    const uint32_t length = static_cast<uint32_t>(s.payload.size()) + (s.flags & flag::kFin);
    if (length == 0 && s.seq != rcv_nxt_ - 1) return;
    ++ack_wanted_;
    if (s.seq != rcv_nxt_ || s.payload.size() > window_) return;
    for (size_t i = 0; i < s.payload.size(); ++i) {
      correct_ = correct_ && s.payload[i] == down_byte(rcv_nxt_ - rcv_first_ - 1 + i);
    }
    rcv_nxt_ += length;
    got_fin_ = got_fin_ || (s.flags & flag::kFin) != 0;
    if (link_.slow_reader) {
      window_ -= static_cast<uint32_t>(s.payload.size());
      if (window_ < 3000) window_ = 0;
    }
  }

 private:
  static constexpr uint32_t kFirst = 0xfffff000, kWindow = 64000;
  uint32_t fin_end() const { return kFirst + 1 + static_cast<uint32_t>(link_.up) + 1; }

  void take_ack(const StackSegment& s, Instant now) {
    const auto progress = static_cast<int32_t>(s.ack - una_);
    const uint32_t edge = s.ack + (uint32_t{s.window} << 7);
    if (progress < 0) return;
    // An edge that moves back more than rounding does would be a broken promise; or an old packet,
    // where the link makes those.
    const bool in_order = link_.reorder == 0 && link_.duplicate == 0;
    if (in_order && static_cast<int32_t>(edge - edge_) < -127) correct_ = false;
    edge_ = static_cast<int32_t>(edge - edge_) > 0 ? edge : edge_;
    if (progress > 0) {
      una_ = s.ack;
      if (static_cast<int32_t>(nxt_ - una_) < 0) nxt_ = una_;
      duplicates_ = 0;
      backoff_ = 300ms;
      resend_at_ = una_ == fin_end() ? Instant::never() : now + backoff_;
    } else if (s.payload.empty() && una_ != nxt_ && ++duplicates_ == 3) {
      nxt_ = una_;
    }
  }

  Bytes segment(uint32_t seq, uint8_t flags, size_t length, bool syn) {
    GuestSegment s;
    s.tuple = {Ipv4{0xc0000002}, Ipv4{0x01020304}, 1234, 80};
    s.seq = seq;
    s.ack = syn ? 0 : rcv_nxt_;
    s.flags = flags;
    s.window = static_cast<uint16_t>(window_);
    if (syn) {
      const int mss = link_.mtu - 40;
      for (const int b : {2, 4, mss >> 8, mss & 255, 3, 3, 0})
        s.options.push_back(static_cast<uint8_t>(b));
    }
    for (size_t i = 0; i < length; ++i) s.payload.push_back(up_byte(seq - kFirst - 1 + i));
    return build(s);
  }

  const Link& link_;
  std::mt19937& random_;
  bool established_ = false, got_fin_ = false, correct_ = true, probe_ = false;
  uint32_t una_ = kFirst, nxt_ = kFirst, edge_ = 0;
  uint32_t rcv_first_ = 0, rcv_nxt_ = 0, window_ = kWindow;
  int mss_ = 536, duplicates_ = 0, ack_wanted_ = 0;
  Duration backoff_ = 300ms;
  Instant resend_at_{};
};

class Transfer : public Owner, public PacketSink {
 public:
  Transfer(const Link& link, uint32_t seed)
      : link_(link), random_(seed), guest_(link, random_), stack_(config(link), *this, *this) {}

  void run() {
    const Instant limit = now_ + 30min;
    while (!(guest_.finished() && closed_) && now_ < limit) step();
    EXPECT_TRUE(guest_.finished()) << "guest got " << guest_.received() << ", host got " << up_got_;
    EXPECT_TRUE(guest_.correct());
    EXPECT_TRUE(correct_);
    EXPECT_EQ(up_got_, link_.up);
    EXPECT_EQ(guest_.received(), link_.down);
    EXPECT_TRUE(fin_);
    EXPECT_TRUE(closed_);
    for (const Instant end = now_ + 1min; now_ < end;) step();
    EXPECT_EQ(stack_.flow_count(), 0u);
    EXPECT_EQ(stack_.ring_memory_used(), 0u);
    EXPECT_EQ(stack_.next_deadline(), Instant::never());
  }

 private:
  static Config config(const Link& link) {
    Config c;
    c.mtu = link.mtu;
    c.ring_memory = link.ring_memory;
    return c;
  }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }

  // The link delivers after 0.1 ms, reordered packets up to 3 ms later.
  void carry(std::multimap<Instant, Bytes>& line, Bytes packet) {
    if (chance(link_.loss)) return;
    const int copies = chance(link_.duplicate) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const auto delay =
          std::chrono::microseconds(100 + (chance(link_.reorder) ? random_() % 3000 : 0));
      line.emplace(now_ + delay, packet);
    }
  }

  void step() {
    now_ = now_ + 100us;
    for (; !to_guest_.empty() && to_guest_.begin()->first <= now_;
         to_guest_.erase(to_guest_.begin())) {
      guest_.take(to_guest_.begin()->second, now_);
    }
    for (Bytes& packet : guest_.tick(now_)) carry(to_stack_, std::move(packet));
    for (; !to_stack_.empty() && to_stack_.begin()->first <= now_;
         to_stack_.erase(to_stack_.begin())) {
      stack_.input(Ipv4{0xc0000002}, Ipv4{0x01020304}, to_stack_.begin()->second, now_);
    }
    if (flow_ != nullptr) host();
    if (now_ >= stack_.next_deadline()) stack_.on_timer(now_);
    stack_.settle(now_);
    if (random_() % 64 == 0) stack_.check_invariants();
  }

  void host() {
    if (link_.slow_host && !chance(0.1)) return;
    read_some();
    while (flow_ != nullptr && down_given_ < link_.down) {
      const WriteSpans room = stack_.tx_room(*flow_);
      if (room.size() == 0) break;
      size_t n = std::min(room.size(), link_.down - down_given_);
      if (link_.slow_host) n = std::min<size_t>(n, 1 + random_() % 5000);
      for (size_t i = 0; i < n; ++i) {
        (i < room.first.size() ? room.first[i] : room.second[i - room.first.size()]) =
            down_byte(down_given_ + i);
      }
      stack_.tx_commit(*flow_, n);
      down_given_ += n;
      if (link_.slow_host) break;
    }
    if (down_given_ == link_.down) stack_.shutdown_write(*flow_);
  }

  void read_some() {
    const ReadSpans spans = stack_.rx(*flow_);
    size_t n = spans.size();
    if (link_.slow_host) n = std::min<size_t>(n, random_() % 5000);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t b =
          i < spans.first.size() ? spans.first[i] : spans.second[i - spans.first.size()];
      correct_ = correct_ && b == up_byte(up_got_ + i);
    }
    up_got_ += n;
    stack_.consume(*flow_, n);
  }

  void on_syn(Flow& flow) override { stack_.accept(*(flow_ = &flow)); }
  void on_readable(Flow&) override {}
  void on_guest_fin(Flow& flow) override { fin_ = stack_.rx(flow).size() == 0; }
  void on_writable(Flow&) override {}
  void on_closed(Flow&, Close how) override {
    flow_ = nullptr;
    closed_ = how == Close::kFinished;
  }
  void on_flow_limit(const Tuple&) override { correct_ = false; }
  std::span<uint8_t> packet_room(size_t size) override {
    if (chance(link_.refuse)) return {};
    buffer_.resize(size);
    return buffer_;
  }
  void send_packet() override { carry(to_guest_, buffer_); }

  const Link link_;
  std::mt19937 random_;
  Instant now_{1h};
  Guest guest_;
  std::multimap<Instant, Bytes> to_guest_, to_stack_;
  Bytes buffer_;
  Flow* flow_ = nullptr;
  size_t up_got_ = 0, down_given_ = 0;
  bool fin_ = false, closed_ = false, correct_ = true;
  Stack stack_;
};

const Link kLinks[] = {
    {.name = "clean"},
    {.name = "one_byte", .up = 1, .down = 1},
    {.name = "nothing_but_fins", .up = 0, .down = 0},
    {.name = "up_only", .up = 3'000'000, .down = 0},
    {.name = "down_only", .up = 0, .down = 3'000'000},
    {.name = "jumbo", .mtu = 65520, .up = 3'000'000, .down = 3'000'000},
    {.name = "largest_mtu", .mtu = 65535, .up = 1'000'000, .down = 1'000'000},
    {.name = "smallest_mtu", .mtu = 576, .up = 100'000, .down = 100'000},
    {.name = "loss", .loss = 0.02},
    {.name = "heavy_loss", .loss = 0.2, .up = 60'000, .down = 60'000},
    {.name = "duplicates", .duplicate = 0.2},
    {.name = "reordering", .reorder = 0.2, .up = 100'000, .down = 100'000},
    {.name = "full_wire", .refuse = 0.5},
    {.name = "slow_guest", .slow_reader = true},
    {.name = "slow_host", .slow_host = true, .up = 200'000, .down = 200'000},
    {.name = "no_ring_memory", .up = 100'000, .down = 100'000, .ring_memory = 0},
    {.name = "everything",
     .loss = 0.03,
     .duplicate = 0.05,
     .reorder = 0.05,
     .refuse = 0.2,
     .slow_reader = true,
     .slow_host = true,
     .up = 60'000,
     .down = 60'000},
    {.name = "everything_jumbo",
     .loss = 0.03,
     .duplicate = 0.05,
     .reorder = 0.05,
     .refuse = 0.2,
     .slow_host = true,
     .mtu = 65520,
     .up = 400'000,
     .down = 400'000},
};

class Bulk : public ::testing::TestWithParam<std::tuple<Link, uint32_t>> {};
TEST_P(Bulk, ArrivesWhole) {
  Transfer(std::get<0>(GetParam()), std::get<1>(GetParam())).run();
}
std::string bulk_name(const ::testing::TestParamInfo<std::tuple<Link, uint32_t>>& run) {
  return std::string(std::get<0>(run.param).name) + "_" + std::to_string(std::get<1>(run.param));
}
INSTANTIATE_TEST_SUITE_P(Tcp, Bulk,
                         ::testing::Combine(::testing::ValuesIn(kLinks), ::testing::Range(1u, 4u)),
                         bulk_name);

}  // namespace
}  // namespace sandbox::tcp::testing
