#include "differential/script.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

namespace sandbox::tcp::differential {
namespace {

using namespace flag;

constexpr int kMostSteps = 14;  // 10 ms each: no timer of 200 ms runs out, see stack_subject.h

// A seed's neighbours must not give similar scripts.
uint64_t mixed(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Generator::Generator(uint64_t run_seed, uint64_t index) : random_(mixed(run_seed, index)) {
  const uint32_t draw = below(100);
  server_ = draw < 75 ? Server::kReads : draw < 94 ? Server::kHolds : Server::kAbsent;
  // Half of the connections cross the wrap of the sequence numbers.
  first_ = {chance(50) ? 0xffffffff - below(4000) : static_cast<uint32_t>(random_())};
  steps_ = 3 + static_cast<int>(below(kMostSteps - 2));
  shakes_hands_ = chance(85);
  window_ = one_of<uint16_t>({65535, 64240, 32768, 20000, 502});
}

bool Generator::next(const View& view, Step& step) {
  step = {};
  if (step_ >= steps_) {
    step.kind = Step::Kind::kDrain;
    return view.open && !std::exchange(drained_, true);
  }
  ++step_;
  if (step_ == 1) {
    step.segments.push_back(shakes_hands_ || chance(60) ? syn() : segment());
    return true;
  }
  if (step_ == 2 && shakes_hands_ && view.syn_acked) {
    step.segments.push_back({.flags = kAck, .window = window_});
    return true;
  }
  if (view.gone && chance(40)) {
    step.segments.push_back(syn());
    return true;
  }
  if (!view.open && !view.gone && chance(60)) {
    step.segments.push_back(opening_segment());
    return true;
  }
  if (view.open && !view.host_closed && chance(30)) {
    step = host_step(view);
    return true;
  }
  if (server_ == Server::kHolds && view.open && !view.guest_closed && chance(25)) {
    step.kind = chance(50) ? Step::Kind::kFill : Step::Kind::kRead;
    return true;
  }
  if (chance(85)) {
    step.segments.push_back(segment());
    return true;
  }
  // Several in one go. Only what is answered alike in any order of answers.
  for (uint32_t n = 2 + below(3); n > 0; --n) step.segments.push_back(plain_segment());
  return true;
}

// --- opening ---

SegmentStep Generator::syn() {
  SegmentStep s{.flags = kSyn, .seq_from = SeqFrom::kFirst, .ack_from = AckFrom::kZero};
  s.window = window_;
  s.options = syn_options();
  if (chance(5)) s.length = length();
  if (chance(5)) s.flags |= one_of<uint8_t>({kPsh, kUrg, kFin, kRst, kFin | kPsh | kUrg});
  if (step_ > 1) s.seq = one_of<int32_t>({0, 0, 0, 1, 70'000, -70'000, 3'000'000});
  return s;
}

Bytes Generator::syn_options() {
  Bytes options;
  const auto add = [&](std::initializer_list<uint32_t> bytes) {
    for (const uint32_t b : bytes) options.push_back(static_cast<uint8_t>(b));
  };
  if (chance(90)) {
    const uint32_t mss = one_of<uint32_t>({1460, 1460, 1460, 536, 1400, 100, 9000, 1, 0});
    add({2, 4, mss >> 8, mss & 255});
  }
  if (chance(10)) add({1, 1});
  if (chance(5)) add({30 + below(200), 2 + below(3), 0, 0});  // of a kind nobody knows
  if (chance(4)) add({one_of<uint32_t>({2, 3, 4, 8, 77}), one_of<uint32_t>({0, 1, 255})});
  if (chance(80)) add({3, 3, one_of<uint32_t>({7, 7, 7, 0, 2, 14, 15, 255})});
  if (chance(3)) add({0, 3, 3, 5});  // behind the end marker
  if (options.size() > 40) options.resize(40);
  return options;
}

// Before the handshake is over.
SegmentStep Generator::opening_segment() {
  SegmentStep s{.flags = kAck, .window = window_};
  switch (below(9)) {
    case 0:
      return syn();
    case 1:
      s.flags |= kPsh;
      s.length = length();
      break;
    case 2:
      s.flags |= kFin;
      break;
    case 3:
      s.ack = one_of<int32_t>({1, -1, 1000, -1000, 100'000});
      break;
    case 4:
      return resets();
    case 5:
      s.seq = one_of<int32_t>({-1, 1, 100, 70'000, -100});
      s.length = chance(50) ? length() : 0;
      break;
    case 6:
      s.flags = kSyn | kAck;
      s.seq = one_of<int32_t>({0, -1});
      break;
    default:
      break;  // the ACK that ends it
  }
  return s;
}

// --- a segment, whatever the state ---

SegmentStep Generator::segment() {
  using Maker = SegmentStep (Generator::*)();
  struct Weighted {
    uint32_t weight;
    Maker make;
  };
  static constexpr std::array<Weighted, 13> kMakers{{{24, &Generator::in_order},
                                                     {8, &Generator::old_data},
                                                     {8, &Generator::ahead},
                                                     {7, &Generator::at_edge},
                                                     {14, &Generator::acknowledges},
                                                     {7, &Generator::repeats_ack},
                                                     {6, &Generator::acks_strangely},
                                                     {4, &Generator::keep_alive},
                                                     {5, &Generator::syn_again},
                                                     {4, &Generator::resets},
                                                     {6, &Generator::finishes},
                                                     {4, &Generator::odd_flags},
                                                     {3, &Generator::spoiled}}};
  uint32_t draw = below(100);
  for (const Weighted& each : kMakers) {
    if (draw < each.weight) return (this->*each.make)();
    draw -= each.weight;
  }
  return in_order();
}

SegmentStep Generator::plain_segment() {
  switch (below(5)) {
    case 0:
      return ahead();
    case 1:
      return old_data();
    case 2:
      return acknowledges();
    default:
      return in_order();
  }
}

// Mostly what it was; now and then it moves, to nothing too.
uint16_t Generator::window() {
  if (chance(12)) window_ = one_of<uint16_t>({65535, 64240, 502, 100, 10, 1, 0, 0});
  return window_;
}

uint16_t Generator::length() {
  return one_of<uint16_t>({1, 2, 10, 99, 536, 1000, 1460});
}

SegmentStep Generator::in_order() {
  SegmentStep s{.flags = kAck, .length = length(), .window = window()};
  if (chance(60)) s.flags |= kPsh;
  if (chance(4)) s.flags |= kUrg;
  if (chance(5)) s.flags |= kFin;
  if (chance(20)) s.ack_from = AckFrom::kAcked;
  return s;
}

// All or a part of it was there before.
SegmentStep Generator::old_data() {
  SegmentStep s = in_order();
  s.seq = -static_cast<int32_t>(1 + below(3000));
  if (chance(40)) s.length = static_cast<uint16_t>(std::min(-s.seq, 1460));
  return s;
}

// Something before it is missing.
SegmentStep Generator::ahead() {
  SegmentStep s = in_order();
  s.seq = one_of<int32_t>({1, 10, 100, 1000, 3000});
  return s;
}

SegmentStep Generator::at_edge() {
  SegmentStep s = in_order();
  s.seq_from = SeqFrom::kEdge;
  s.seq = one_of<int32_t>({-1, 0, 1, -100, 100, 100'000});
  if (chance(40)) s.length = 0;
  return s;
}

SegmentStep Generator::acknowledges() {
  SegmentStep s{.flags = kAck, .window = window()};
  if (chance(30)) s.ack = -static_cast<int32_t>(below(3000));
  return s;
}

SegmentStep Generator::repeats_ack() {
  return {.flags = kAck, .ack_from = AckFrom::kAcked, .window = window_};
}

SegmentStep Generator::acks_strangely() {
  SegmentStep s{.flags = kAck, .window = window()};
  s.ack = one_of<int32_t>({1, 1000, 1'000'000, 2'000'000'000, -1'000'000, -100'000'000, -1});
  if (chance(30)) s.length = length();
  return s;
}

SegmentStep Generator::keep_alive() {
  return {.flags = kAck, .seq = -1, .length = static_cast<uint16_t>(below(2)), .window = window_};
}

SegmentStep Generator::syn_again() {
  SegmentStep s = syn();
  if (chance(60)) {
    s.seq_from = SeqFrom::kNext;
    s.seq = one_of<int32_t>({0, -1, 1, 100, 100'000, -100'000});
  }
  if (chance(30)) {
    s.flags |= kAck;
    s.ack_from = AckFrom::kSent;
  }
  return s;
}

SegmentStep Generator::resets() {
  SegmentStep s{.flags = kRst, .window = window_};
  s.seq = one_of<int32_t>({0, 0, 1, -1, 100, 30'000, -30'000, 2'000'000});
  if (chance(50)) s.flags |= kAck;
  if (chance(10)) s.length = length();
  return s;
}

SegmentStep Generator::finishes() {
  SegmentStep s{.flags = kFin | kAck, .window = window()};
  s.seq = one_of<int32_t>({0, 0, 0, 0, -1, 1, 100});
  return s;
}

SegmentStep Generator::odd_flags() {
  SegmentStep s = in_order();
  s.flags = static_cast<uint8_t>(below(64));
  if (chance(50)) s.length = 0;
  return s;
}

SegmentStep Generator::spoiled() {
  SegmentStep s = in_order();
  s.damage = one_of({Damage::kChecksum, Damage::kShortOffset, Damage::kLongOffset});
  return s;
}

// --- the host's program ---

Step Generator::host_step(const View& view) {
  Step step;
  const uint32_t draw = below(100);
  if (draw < 80 && view.in_flight < 20'000) {
    step.kind = Step::Kind::kWrite;
    step.count = one_of<uint32_t>({1, 10, 100, 536, 1460, 2920, 5000});
  } else if (draw < 95) {
    step.kind = Step::Kind::kClose;
  } else {
    step.kind = Step::Kind::kAbort;
  }
  return step;
}

// --- text ---

std::string flags_text(uint8_t flags) {
  constexpr std::string_view kLetters = "FSRPAU";  // in the order of their bits
  std::string text;
  for (const char letter : std::string_view("SFRPAU")) {
    if ((flags >> kLetters.find(letter) & 1) != 0) text += letter;
  }
  return text.empty() ? "." : text;
}

std::string text(const Outgoing& s, Seq first, Seq subject_first) {
  std::string line = fmt::format("> {} seq={}", flags_text(s.flags), s.seq - first);
  if ((s.flags & kAck) != 0) line += fmt::format(" ack={}", s.ack - subject_first);
  if (!s.payload.empty()) line += fmt::format(" len={}", s.payload.size());
  line += fmt::format(" win={}", s.window);
  if (!s.options.empty()) line += " raw=";
  for (const uint8_t b : s.options) line += fmt::format("{:02x}", b);
  if (s.damage == Damage::kChecksum) line += " bad";
  if (s.damage == Damage::kShortOffset) line += " offset=4";
  if (s.damage == Damage::kLongOffset) line += " offset=15";
  return line;
}

std::string text(const Heard& h, Seq first, Seq subject_first) {
  std::string line = fmt::format("< {} seq={}", flags_text(h.flags), h.seq - subject_first);
  if (h.has(kAck)) line += fmt::format(" ack={}", h.ack - first);
  if (h.length > 0) line += fmt::format(" len={}", h.length);
  line += fmt::format(" win={}", h.window);
  if (h.options.mss) line += fmt::format(" mss={}", *h.options.mss);
  if (h.options.scale) line += fmt::format(" scale={}", *h.options.scale);
  return line;
}

std::string text(Step::Kind kind, uint32_t count) {
  switch (kind) {
    case Step::Kind::kSegments:
      return "guest";
    case Step::Kind::kFill:
      return "the guest fills the window";
    case Step::Kind::kDrain:
      return "the guest opens its window and acknowledges all";
    case Step::Kind::kWrite:
      return fmt::format("! write {}", count);
    case Step::Kind::kRead:
      return "! read all";
    case Step::Kind::kClose:
      return "! close";
    case Step::Kind::kAbort:
      return "! abort";
  }
  return {};
}

}  // namespace sandbox::tcp::differential
