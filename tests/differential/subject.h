#pragma once
// What is compared: a TCP that answers a guest's segments, with servers behind it that do what a
// script says.

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "differential/script.h"

namespace sandbox::tcp::differential {

// Addresses and ports that both subjects use. A connection of a batch has the guest port kFirstPort
// + its index; each batch has a guest address of its own, so that nothing late of an earlier one is
// mistaken.
constexpr Ipv4 kServerIp{0xC6120001};  // 198.18.0.1
constexpr uint16_t kServerPorts[kServers] = {80, 81, 82};
constexpr uint16_t kFirstPort = 10'000;
constexpr size_t kMostConnections = 4096;
constexpr uint16_t kMtu = 1500;

// RFC 9293's states as far as the host's side can see them. kNone is: no connection, not yet one,
// or one that only waits.
enum class Stage : uint8_t {
  kNone,
  kEstablished,
  kFinWait1,
  kFinWait2,
  kCloseWait,
  kClosing,
  kLastAck,
};
const char* name(Stage stage);

// The host's side of a connection since the last look.
struct HostView {
  Stage stage = Stage::kNone;
  uint32_t connection = 0;  // counts what was opened on this tuple
  Bytes received;           // read by the program
};

class Subject {
 public:
  using Listener = std::function<void(ByteView packet)>;
  virtual ~Subject() = default;

  // Connections 0…count-1, all of `guest`.
  virtual void begin(Ipv4 guest, size_t count) = 0;
  virtual void send(ByteView packet) = 0;
  // kWrite, kRead, kClose, kAbort; nothing happens where there is no connection to do it on.
  virtual void act(size_t connection, const Step& step) = 0;
  // All that needs no time has happened, and what was answered was heard.
  virtual void settle() = 0;
  // A delayed acknowledgment that is still due goes out. No other timer runs.
  virtual void rest() = 0;
  virtual HostView look(size_t connection) = 0;
  // Ends what is left.
  virtual void end() = 0;
};

}  // namespace sandbox::tcp::differential
