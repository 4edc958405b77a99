#pragma once
// The times and counts the terminator lives by. Sizes that a caller may choose are in Config.

#include <cstdint>

#include "base/clock.h"

namespace sandbox::tcp {

inline constexpr uint8_t kOurScale = 7;  // 65535 << 7 covers the largest ring

// Acknowledging (RFC 9293, 3.8.6.3, allows 500 ms; interactive traffic wants less).
inline constexpr Duration kAckDelay = 10ms;
inline constexpr uint8_t kMaxDuplicatesOwed =
    16;                                   // per wake-up; three are enough to make a sender resend
inline constexpr int kDuplicateAcks = 3;  // received in a row: resend (RFC 5681, 3.2)

// Resending and probing.
inline constexpr Duration kResendFirst = 200ms;
inline constexpr Duration kResendLongest = 8s;
inline constexpr int kUnanswered =
    19;  // times with nothing heard at all: 0.2 + 0.4 + … + 6.4 + 14 × 8 s, two minutes

// Challenge ACKs (RFC 5961, 7), per flow.
inline constexpr int kChallenges = 10;
inline constexpr Duration kChallengePeriod = 1s;

// Ends.
inline constexpr Duration kDecision =
    90s;  // the owner has its own, shorter limits; this one is for its mistakes
inline constexpr Duration kHalfOpen = 30s;      // SYN or SYN-ACK unanswered
inline constexpr Duration kHalfClosed = 15min;  // since the last new byte either way
inline constexpr Duration kFlush = 30s;         // for what the host sent before its reset
inline constexpr Duration kTimeWaitTime =
    10s;  // nothing old wanders about on this link; covers a lost last ACK
inline constexpr Duration kKeepAliveIdle = 2h;
inline constexpr Duration kKeepAlivePeriod = 75s;
inline constexpr int kKeepAlives = 9;
inline constexpr Duration kEvictIdle =
    60s;  // a flow used more recently is never sacrificed for a new one

// Output.
inline constexpr uint32_t kTurn =
    64 * 1024;  // payload bytes per flow before the next one gets its turn
inline constexpr uint16_t kSmallestMss = 88;  // smaller offers only make us send headers
inline constexpr uint32_t kScarceWindow =
    32768;  // offered when ring memory is scarce; a ClientHello fits

// Ring memory.
inline constexpr Duration kRingIdle = 5s;

}  // namespace sandbox::tcp
