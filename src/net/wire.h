#pragma once
// The wire to the guest: whole Ethernet frames in both directions over one non-blocking descriptor.
//
// Two forms. StreamWire is QEMU's `-netdev stream`: a 4-byte big-endian length, then the frame.
// TapWire is a TAP device opened with IFF_TAP | IFF_NO_PI, one frame per read and write, for tests
// and benchmarks without a VM.
//
// Sending. begin_frame() lends space for one frame inside a fixed buffer, commit_frame() appends
// it, flush() writes what is there, as much as the descriptor takes. A frame that was begun with no
// room left is *not sent* and the caller hears so at once: a TCP sender then leaves its sequence
// numbers alone and tries again when the wire drains. What was committed is kept until written; a
// frame that went out in part is finished before any other byte.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"

namespace sandbox::net {

// The largest frame either form carries: an IPv4 packet of 65535 bytes behind an Ethernet header.
constexpr size_t kMaxFrame = 65535 + 14;

class Wire {
 public:
  virtual ~Wire() = default;
  [[nodiscard]] virtual int fd() const = 0;

  // Hands every frame that can be read now, within a fair share, to `handler`. An error means that
  // the wire is gone (closed, or out of step with the peer) and stays so.
  using Handler = std::function<void(ByteView frame)>;
  virtual Status receive(const Handler& handler) = 0;

  // Room for a frame of `size` bytes (at most kMaxFrame), valid until the next call; empty when the
  // buffer is full.
  virtual std::span<uint8_t> begin_frame(size_t size) = 0;
  virtual void commit_frame() = 0;
  // Writes until everything is out or the descriptor would block.
  virtual Status flush() = 0;
  // True while committed bytes wait for the descriptor: watch it for writing then.
  [[nodiscard]] virtual bool blocked() const = 0;
};

// Takes ownership and makes the descriptor non-blocking.
Result<std::unique_ptr<Wire>> make_stream_wire(Fd fd);
Result<std::unique_ptr<Wire>> make_tap_wire(Fd fd);

}  // namespace sandbox::net
