#pragma once
// The framing of the port `sandbox.fs.0`: FUSE messages of every share of one sandbox on one byte
// stream, in both directions.
//
//   u32 length   of the whole message, these eight bytes included; little-endian, as all here
//   u32 share    which mount it belongs to; the numbers are those of the configuration
//   …            one raw FUSE message: fuse_in_header and body towards the host, fuse_out_header
//   and body towards the
//                guest. A notification is an out header with unique 0.
//
// A FUSE message carries its own length, which is not used for framing: it is the guest kernel's
// word about the inside, and the server checks it against what arrived.
//
// Limits: kMaxPayload bytes of FUSE message, that is the largest write or read of 1 MiB and
// generous headers. A longer or an empty length is a violation of the protocol, after which nothing
// of the stream can be trusted: the decoder stays failed, and its owner closes the port.

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"

namespace sandbox::files {

inline constexpr size_t kFrameHeader = 8;
inline constexpr size_t kMaxData = 1U << 20;  // bytes of one FUSE read or write
inline constexpr size_t kMaxPayload = kMaxData + 4096;
// The smallest FUSE message is a reply without a body: struct fuse_out_header.
inline constexpr size_t kMinPayload = 16;

struct Message {
  uint32_t share = 0;
  ByteView payload;  // valid until the decoder is called again
};

// Writes the header of a message whose payload has `payload` bytes to `out`, which has room for
// kFrameHeader.
void write_frame_header(uint8_t* out, uint32_t share, size_t payload);

// Takes the stream in pieces of any size and yields whole messages. Holds at most one message.
//
//   decoder.append(piece);
//   while (true) {
//     ASSIGN(const auto message, decoder.next());
//     if (!message) break;
//     …
//   }
class Decoder {
 public:
  void append(ByteView piece);
  // nullopt: more bytes are needed.
  Result<std::optional<Message>> next();
  [[nodiscard]] size_t buffered() const { return buffer_.size() - at_; }

 private:
  Bytes buffer_;
  size_t at_ = 0;  // what is before has been handed out
  bool failed_ = false;
};

}  // namespace sandbox::files
