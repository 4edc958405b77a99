#pragma once
// Which answers count as different, and which differences are accepted and why.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "differential/guest.h"
#include "net/tcp/flow.h"

namespace sandbox::tcp::differential {

// What two answers may differ in; a set of them is a sum of bits.
enum Field : uint16_t {
  kResets = 1,
  kSynAcks = 2,
  kSpoken = 4,  // whether it said anything at all
  kAcknowledged = 8,
  kSent = 16,
  kFinSent = 32,
  kResent = 64,
  kWindow = 128,
  kDelivered = 256,
  kStage = 512,
};
std::string fields_text(uint16_t fields);

// What had happened on a connection before the step that is looked at.
struct History {
  Server server = Server::kReads;
  State state = State::kClosed;  // of the stack under test
  bool open = false;             // an end of it is established in the stack under test
  bool guest_fin = false;        // the guest's FIN was taken
  bool fin_sent = false;         // the guest has sent one, in its turn or before it
  bool filled = false;           // the guest has filled the window
  bool recovering = false;       // one of the two has sent something again
  bool apart = false;            // the two have sent different amounts at some time
  bool late_close = false;       // it has ended, and the program's close had waited for room
  int challenges = 0;            // segments that may draw a challenge ACK
  uint8_t scale = 0;             // of the guest's windows
  uint32_t window = 0, smallest_window = UINT32_MAX;  // the guest's, in bytes
  bool shrank = false;                                // the guest has offered less than before
  Seq first;                                          // number of the guest's SYN
  Seq next[2], edge[2];                               // as the stack and the kernel have told

  // After a step: `segments` were sent to the stack.
  void learn(Step::Kind kind, const std::vector<Outgoing>& segments, State now, const Guest& stack,
             const Guest& kernel);

 private:
  void learn_window(const Outgoing& segment);
};

// One step on one connection.
struct Moment {
  const Step& step;
  const std::vector<Outgoing>& segments;  // as the stack got them
  const std::vector<Outgoing>& to_kernel;
  const History& before;
  const Guest& stack;
  const Guest& kernel;

  [[nodiscard]] const Answer& ours() const { return stack.answer(); }
  [[nodiscard]] const Answer& theirs() const { return kernel.answer(); }
};

uint16_t differences(const Answer& a, const Answer& b);

// kEnds: the two are in different states from then on, and the rest of the script says nothing.
// kEndsUnseen: so they may be without a difference that shows.
enum class After : uint8_t { kGoesOn, kEnds, kEndsUnseen };

struct Accepted {
  const char* name;
  const char* reason;
  uint16_t fields;  // what it explains
  After after;
  bool (*when)(const Moment& moment);
};
std::span<const Accepted> accepted_differences();

}  // namespace sandbox::tcp::differential
