#include "differential/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace sandbox::tcp::differential {
namespace {

using namespace flag;

constexpr uint16_t kAll = 0xffff;
// Less than what a program writes at once, or than a few segments.
constexpr uint32_t kSmallWindow = 10'000;
constexpr uint16_t kSending = kSent | kSpoken | kFinSent | kResent;

bool has(const Outgoing& segment, uint8_t flags) {
  return (segment.flags & flags) != 0;
}
bool is_syn(const Outgoing& segment) {
  return has(segment, kSyn) && !has(segment, kAck);
}
Seq end_of(const Outgoing& segment) {
  return segment.seq + static_cast<uint32_t>(segment.payload.size()) + (has(segment, kFin) ? 1 : 0);
}

// True when one of the step's segments that are intact is such.
template <typename Predicate>
bool any(const Moment& m, Predicate such) {
  return std::ranges::any_of(
      m.segments, [&](const Outgoing& s) { return s.damage == Damage::kNone && such(s); });
}

bool is_nonsense(const Outgoing& segment) {
  if (has(segment, kSyn)) return has(segment, kFin | kRst);
  return !has(segment, kRst | kAck);
}

bool brings_bytes(const Moment& m) {
  return m.step.kind == Step::Kind::kFill ||
         any(m, [](const Outgoing& s) { return !s.payload.empty() || has(s, kFin); });
}

bool brings_bytes_after_fin(const Moment& m) {
  const bool fin_now = any(m, [](const Outgoing& s) { return has(s, kFin); });
  return (m.before.guest_fin || (fin_now && m.segments.size() > 1)) && brings_bytes(m);
}

// A FIN that came before its turn, and bytes where it was or behind it.
bool contradicts_fin(const Moment& m) {
  const bool fin_now = any(m, [](const Outgoing& s) { return has(s, kFin); });
  const bool sent = m.before.fin_sent || (fin_now && m.segments.size() > 1);
  return sent && !m.before.guest_fin && brings_bytes(m);
}

// The windows of the two may end at different places; each counts from its own next number.
bool straddles_edge(const Moment& m) {
  const int32_t edges[] = {m.before.edge[0] - m.before.next[0],
                           m.before.edge[1] - m.before.next[1]};
  const auto [nearer, farther] = std::minmax(edges[0], edges[1]);
  return any(m, [&, near = nearer, far = farther](const Outgoing& s) {
    return s.seq - m.before.next[0] <= far && end_of(s) - m.before.next[0] > near;
  });
}

// When all windows are open in the end, nothing is left to explain.
bool ends_alike(const Moment& m) {
  return m.step.kind == Step::Kind::kDrain;
}

constexpr Accepted kAccepted[] = {
    {"flags that contradict each other",
     "SYN with FIN or RST, and segments with none of SYN, RST and ACK, are dropped unanswered in "
     "every state: no TCP sends them, and different readers would read them differently. The "
     "kernel takes SYN with RST for a RST, SYN with FIN for a SYN, and resets what has no flow.",
     kAll, After::kEnds, [](const Moment& m) { return any(m, is_nonsense); }},
    {"a SYN with RST or FIN where no program sees the connection",
     "As above; before the handshake is over and in TIME-WAIT the kernel forgets the connection "
     "and says nothing.",
     kAll, After::kEndsUnseen,
     [](const Moment& m) {
       return !m.before.open && m.before.state != State::kDeciding &&
              any(m, [](const Outgoing& s) { return has(s, kSyn) && is_nonsense(s); });
     }},
    {"a new SYN before the handshake is over",
     "RFC 9293, 3.10.7.4: a passive opener returns to LISTEN, so the new SYN is taken. The kernel "
     "asks the guest by an ACK, or resets, and the guest begins anew a second later.",
     kResets | kSynAcks | kSpoken, After::kEnds,
     [](const Moment& m) {
       return m.before.state == State::kSynReceived &&
              any(m, [&](const Outgoing& s) { return is_syn(s) && s.seq != m.before.first; });
     }},
    {"a SYN-ACK with payload in answer to our SYN-ACK",
     "As below. The kernel cuts the SYN off and takes the rest for the end of the handshake.", kAll,
     After::kEndsUnseen,
     [](const Moment& m) {
       return m.before.state == State::kSynReceived && any(m, [](const Outgoing& s) {
                return has(s, kSyn) && has(s, kAck) && !s.payload.empty();
              });
     }},
    {"a SYN-ACK in answer to our SYN-ACK",
     "RFC 5961, 4: a SYN in a connection is answered with an ACK. The kernel, which has no "
     "connection yet at that point, answers with RST and forgets the SYN.",
     kResets | kSpoken, After::kEnds,
     [](const Moment& m) {
       return m.before.state == State::kSynReceived &&
              any(m, [](const Outgoing& s) { return has(s, kSyn) && has(s, kAck); });
     }},
    {"a wrong ACK before the handshake is over",
     "RFC 9293, 3.10.7.4: the sequence number is judged first, and a wrong one draws an ACK. The "
     "kernel looks at the ACK first and resets. What one wake-up owes besides a RST is not sent.",
     kResets | kSpoken, After::kGoesOn,
     [](const Moment& m) {
       return m.before.state == State::kSynReceived && any(m, [&](const Outgoing& s) {
                return has(s, kAck) && s.ack != m.stack.subject_first() + 1;
              });
     }},
    {"data with an ACK that is too old",
     "RFC 5961, 5.2: such a segment is dropped and its sender asked. So does the kernel, except in "
     "the fast path for what it expects next, which takes the data.",
     kAll, After::kEnds,
     [](const Moment& m) {
       return any(m, [&](const Outgoing& s) {
         return has(s, kAck) && !s.payload.empty() && s.ack < m.stack.acked();
       });
     }},
    {"data with an ACK that is too old for one of the two",
     "As above, where the two have sent different amounts and the guest has acknowledged them.",
     kAll, After::kEnds,
     [](const Moment& m) {
       return m.before.apart && std::ranges::any_of(m.to_kernel, [&](const Outgoing& s) {
                return has(s, kAck) && !s.payload.empty() && s.ack < m.kernel.acked();
              });
     }},
    {"a RST with payload",
     "RFC 5961, 3.2: a RST is judged by its number alone, and dropped outside the window. The "
     "kernel challenges one whose payload reaches into it.",
     kSpoken, After::kGoesOn,
     [](const Moment& m) {
       return any(m, [](const Outgoing& s) { return has(s, kRst) && !s.payload.empty(); });
     }},
    {"bytes after the guest's FIN are acknowledged",
     "RFC 9293, 3.10.7.4: ignored, it should not occur. An ACK tells the guest where it stands; "
     "the kernel is silent.",
     kSpoken, After::kGoesOn, brings_bytes_after_fin},
    {"bytes after the guest's FIN never reset",
     "As above. The kernel resets when they begin before the FIN, or takes another FIN that "
     "follows them.",
     kAll, After::kEnds,
     [](const Moment& m) {
       const bool resets = !m.theirs().resets.empty() || m.theirs().stage == Stage::kNone;
       const bool more_fins = m.theirs().acknowledged > m.ours().acknowledged;
       return brings_bytes_after_fin(m) && (resets || more_fins);
     }},
    {"a FIN before its turn that later bytes contradict",
     "This stack has dropped it and takes the bytes; the kernel has kept it and where it stands "
     "the bytes end. No TCP sends both.",
     kAll, After::kEnds, contradicts_fin},
    {"a segment that reaches beyond the window",
     "RFC 9293, 3.10.7.4: what lies in the window is taken. The kernel drops the whole segment "
     "when bytes wait to be read, and takes more than it offered when none do.",
     kAll & ~kSynAcks, After::kEnds, straddles_edge},
    {"a segment that reaches beyond the window while bytes wait",
     "As above. The kernel has not seen the ACK and window of such a segment either.",
     kAll & ~kSynAcks, After::kEndsUnseen,
     [](const Moment& m) {
       const bool may_wait = m.before.server == Server::kHolds || m.segments.size() > 1;
       return may_wait && straddles_edge(m);
     }},
    {"a RST one number before the next after a FIN",
     "The kernel honours it for the sake of another system's bug. RFC 5961, 3.2 wants the exact "
     "number.",
     kStage, After::kEnds,
     [](const Moment& m) {
       return m.before.guest_fin && any(m, [&](const Outgoing& s) {
                return has(s, kRst) && s.seq + 1 == m.before.next[0];
              });
     }},
    {"an ACK in TIME-WAIT is judged",
     "One of something never sent draws an ACK as in any other state. The kernel no longer looks "
     "at it then.",
     kSpoken, After::kGoesOn, [](const Moment& m) { return m.before.state == State::kTimeWait; }},
    {"which of two closes came first",
     "The program's close waits behind bytes that have no room in the ring, and the guest's FIN "
     "was "
     "first. The kernel had room and has been first itself, so it is the one in TIME-WAIT.",
     kResets | kSpoken | kSynAcks, After::kEnds,
     [](const Moment& m) { return m.before.late_close; }},
    {"a refusal acknowledges the SYN alone",
     "The payload on a SYN is not taken, so a RST after the decision does not acknowledge it. A "
     "guest believes both.",
     kResets, After::kGoesOn,
     [](const Moment& m) {
       return m.before.server == Server::kAbsent &&
              any(m, [](const Outgoing& s) { return is_syn(s) && !s.payload.empty(); });
     }},
    {"how much fills a buffer",
     "The buffers are of different sizes. That both windows close, and open again, is compared.",
     kAcknowledged | kDelivered, After::kGoesOn,
     [](const Moment& m) {
       return m.step.kind == Step::Kind::kFill ||
              (m.step.kind == Step::Kind::kRead && m.before.filled);
     }},
    {"when all is sent in the end",
     "What one of the two had held back, the other had sent. That both have sent all is compared.",
     kSpoken | kFinSent | kResent, After::kGoesOn,
     [](const Moment& m) { return m.step.kind == Step::Kind::kDrain; }},
    {"how a small window is used",
     "Silly-window avoidance is the sender's affair (RFC 9293, 3.8.6.2.1). This stack sends half "
     "of the largest window, or a full segment; the kernel cuts segments to half of the largest "
     "window, keeps a FIN with its last bytes, and leaves the rest to a timer.",
     kSending, After::kGoesOn,
     [](const Moment& m) { return !ends_alike(m) && m.before.smallest_window < kSmallWindow; }},
    {"the end of a window", "As above, for the last bytes that still fit: less than a segment.",
     kSending, After::kGoesOn,
     [](const Moment& m) {
       const Guest& more = m.ours().sent > m.theirs().sent ? m.stack : m.kernel;
       const auto in_flight = static_cast<uint32_t>(more.sent() - more.acked());
       return !ends_alike(m) && std::abs(m.ours().sent - m.theirs().sent) < 1460 &&
              in_flight >= m.before.window;
     }},
    {"a window that shrank",
     "RFC 9293, 3.10.7.4: the latest window counts. The kernel takes a smaller one only with a "
     "newer number or ACK, and goes on in the old one.",
     kSending, After::kGoesOn,
     [](const Moment& m) {
       return !ends_alike(m) && m.before.shrank && m.theirs().sent >= m.ours().sent;
     }},
    {"a RST after the window shrank",
     "It has a number inside the window the guest has now; the kernel's, where it has not taken "
     "the "
     "smaller window, one inside the window it had.",
     kResets, After::kGoesOn,
     [](const Moment& m) { return m.step.kind == Step::Kind::kAbort && m.before.shrank; }},
    {"several windows in one wake-up",
     "This stack sends once, by the latest window; the kernel sends after each segment.", kSending,
     After::kGoesOn,
     [](const Moment& m) {
       return !ends_alike(m) && m.segments.size() > 1 && m.theirs().sent >= m.ours().sent;
     }},
    {"how lost bytes are sent again",
     "This stack goes back to the first of them and on from there; the kernel resends holes, holds "
     "new bytes back by its congestion window, and wants four segments on the way before three "
     "duplicate ACKs mean a loss. The link loses nothing.",
     kSending, After::kGoesOn,
     [](const Moment& m) {
       return !ends_alike(m) && (m.before.recovering || m.ours().resent || m.theirs().resent);
     }},
    {"a connection that one of the two has ended when less was sent",
     "As below, and the end of it.", kAll, After::kEnds,
     [](const Moment& m) {
       const bool ended = m.ours().stage == Stage::kNone || m.theirs().stage == Stage::kNone;
       return ended && !ends_alike(m) && (m.before.apart || m.ours().sent != m.theirs().sent);
     }},
    {"how far a close has come when less was sent",
     "A FIN follows the last byte, and its acknowledgment the FIN. Only where the two have not "
     "sent the same at the same time, for a reason above.",
     kStage, After::kGoesOn,
     [](const Moment& m) {
       return !ends_alike(m) && (m.before.apart || m.ours().sent != m.theirs().sent);
     }},
    {"challenge ACKs are rationed",
     "Ten a second and flow (RFC 5961, 7). The kernel's own ration is lifted for the comparison.",
     kSpoken, After::kGoesOn, [](const Moment& m) { return m.before.challenges >= 10; }},
};

}  // namespace

std::string fields_text(uint16_t fields) {
  constexpr const char* kNames[] = {"resets", "syn-acks", "answered", "ack",       "sent",
                                    "fin",    "resent",   "window",   "delivered", "stage"};
  std::vector<std::string_view> names;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if ((fields >> i & 1) != 0) names.emplace_back(kNames[i]);
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

// A RST without ACK repeats the number of the segment it answers. Where the two have sent different
// amounts, that counts from what the guest has acknowledged to either.
static bool alike(const Sign& a, const Sign& b) {
  return a.flags == b.flags && a.ack == b.ack && (a.seq == b.seq || a.seq_acked == b.seq_acked);
}

uint16_t differences(const Answer& a, const Answer& b) {
  uint16_t fields = 0;
  const auto differ = [&](bool yes, Field field) {
    if (yes) fields = static_cast<uint16_t>(fields | field);
  };
  differ(!std::ranges::equal(a.resets, b.resets, alike), kResets);
  differ(a.syn_acks != b.syn_acks, kSynAcks);
  differ((a.spoken > 0) != (b.spoken > 0), kSpoken);
  differ(a.acknowledged != b.acknowledged, kAcknowledged);
  differ(a.sent != b.sent, kSent);
  differ(a.fin != b.fin, kFinSent);
  differ(a.resent != b.resent, kResent);
  differ(a.window != b.window, kWindow);
  differ(a.delivered != b.delivered, kDelivered);
  differ(a.stage != b.stage, kStage);
  return fields;
}

std::span<const Accepted> accepted_differences() {
  return kAccepted;
}

void History::learn(Step::Kind kind, const std::vector<Outgoing>& segments, State now,
                    const Guest& stack, const Guest& kernel) {
  for (const Outgoing& each : segments) {
    if (each.damage != Damage::kNone) continue;
    learn_window(each);
    if (has(each, kSyn | kRst) || each.payload.empty()) ++challenges;
  }
  state = now;
  if (kind == Step::Kind::kFill) {
    filled = true;
    window = uint32_t{kFillWindow} << scale;
  }
  if (!stack.answer().syn_acks.empty()) guest_fin = recovering = false;
  if (!stack.answer().syn_acks.empty()) apart = false;
  apart = apart || stack.answer().sent != kernel.answer().sent;
  recovering = recovering || stack.answer().resent || kernel.answer().resent;
  open = state >= State::kEstablished && state < State::kTimeWait;
  guest_fin = guest_fin || state == State::kCloseWait || state == State::kLastAck ||
              state == State::kClosing || state == State::kTimeWait;
  const Guest* guests[] = {&stack, &kernel};
  for (size_t i = 0; i < 2; ++i) {
    next[i] = guests[i]->next();
    edge[i] = guests[i]->edge();
  }
}

void History::learn_window(const Outgoing& segment) {
  const bool begins = state == State::kClosed || state == State::kTimeWait ||
                      (state == State::kSynReceived && segment.seq != first);
  if (is_syn(segment)) {
    if (!begins) return;
    const SynOptions options = read_options(segment.options);
    scale = std::min(options.scale.value_or(0), kMaxScale);
    first = segment.seq;
    window = smallest_window = segment.window;
    shrank = fin_sent = filled = false;
    return;
  }
  fin_sent = fin_sent || (has(segment, kFin) && has(segment, kAck));
  const uint32_t offered = uint32_t{segment.window} << scale;
  shrank = shrank || offered < window;
  window = offered;
  smallest_window = std::min(smallest_window, offered);
}

}  // namespace sandbox::tcp::differential
