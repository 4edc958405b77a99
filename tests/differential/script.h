#pragma once
// A script is one connection's worth of steps: what the guest sends and what the host's program
// does. Its numbers count from what a subject has said so far, so that the same step means the same
// to two subjects whose windows differ.

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "differential/segment.h"

namespace sandbox::tcp::differential {

// Where a sequence number of the guest counts from.
enum class SeqFrom : uint8_t {
  kNext,   // the number the subject acknowledged last
  kEdge,   // the right edge of the window it offered
  kFirst,  // the guest's initial number
};
// Where an acknowledgment of the guest counts from.
enum class AckFrom : uint8_t {
  kSent,   // the end of all the subject has sent
  kAcked,  // what the guest acknowledged last
  kZero,   // the number 0, when there is nothing to count from
};

struct SegmentStep {
  uint8_t flags = 0;
  SeqFrom seq_from = SeqFrom::kNext;
  int32_t seq = 0;
  AckFrom ack_from = AckFrom::kSent;
  int32_t ack = 0;
  uint16_t length = 0;
  uint16_t window = 0;
  Bytes options = {};
  Damage damage = Damage::kNone;
};

struct Step {
  enum class Kind : uint8_t {
    kSegments,  // the guest sends these in one go
    kFill,      // the guest sends until the window is closed
    kDrain,     // it opens its window and acknowledges until nothing more comes
    kWrite,     // the host's program writes `count` bytes
    kRead,      // it reads all it left unread
    kClose,     // it closes its direction
    kAbort,     // it gives the connection up
  };
  Kind kind = Kind::kSegments;
  std::vector<SegmentStep> segments;
  uint32_t count = 0;
};

// Which of the servers the guest talks to.
enum class Server : uint8_t {
  kReads,   // reads whatever comes
  kHolds,   // reads when told to; small buffers
  kAbsent,  // nobody listens
};
constexpr size_t kServers = 3;

// What the generator knows of a connection when it makes the next step: the side of the stack under
// test, which is the same each time.
struct View {
  bool open = false;         // the handshake is over, and the connection is not
  bool gone = false;         // there is no connection any more
  bool syn_acked = false;    // a SYN-ACK has been heard
  bool host_closed = false;  // the host's program has closed or aborted
  bool guest_closed = false;
  uint32_t in_flight = 0;  // sent by the subject and not acknowledged by the guest
  int32_t window = 0;      // offered by the subject
};

// Makes the steps of one script from its seed.
class Generator {
 public:
  Generator(uint64_t run_seed, uint64_t index);

  [[nodiscard]] Server server() const { return server_; }
  [[nodiscard]] Seq first() const { return first_; }
  // False when the script is over.
  bool next(const View& view, Step& step);

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<uint32_t>(values.size()))];
  }

  SegmentStep syn();
  Bytes syn_options();
  uint16_t window();
  uint16_t length();
  SegmentStep opening_segment();
  SegmentStep segment();
  SegmentStep plain_segment();
  Step host_step(const View& view);

  SegmentStep in_order();
  SegmentStep old_data();
  SegmentStep ahead();
  SegmentStep at_edge();
  SegmentStep acknowledges();
  SegmentStep repeats_ack();
  SegmentStep acks_strangely();
  SegmentStep keep_alive();
  SegmentStep syn_again();
  SegmentStep resets();
  SegmentStep finishes();
  SegmentStep odd_flags();
  SegmentStep spoiled();

  std::mt19937_64 random_;
  Server server_;
  Seq first_;
  int step_ = 0, steps_;
  bool drained_ = false;
  bool shakes_hands_;
  uint16_t window_ = 0;  // what the guest offers as long as nothing moves it
};

// One line, in the form of the packet scripts of tests/unit/net/tcp; numbers as that subject got
// them: `first` of the guest, and of the subject.
std::string text(const Outgoing& segment, Seq first, Seq subject_first);
std::string text(const Heard& heard, Seq first, Seq subject_first);
std::string flags_text(uint8_t flags);
std::string text(Step::Kind kind, uint32_t count);

}  // namespace sandbox::tcp::differential
