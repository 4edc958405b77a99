#pragma once
// The Internet checksum (RFC 1071): the 16-bit ones' complement of a ones' complement sum. Sums of
// pieces are combined before the final complement; a piece that starts at an odd offset contributes
// its sum with the bytes swapped.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace sandbox::net {

// A running sum over big-endian 16-bit words of a byte sequence that is handed over in pieces of
// any length.
class Checksum {
 public:
  void add(ByteView piece);
  // The same while copying: one pass over the source. `to` must hold piece.size() bytes and not
  // overlap it.
  void add_copy(ByteView piece, uint8_t* to);
  // A 16-bit or 32-bit number in host order, at an even offset.
  void add16(uint16_t number) { sum_ += number; }
  void add32(uint32_t number) { sum_ += (number >> 16) + (number & 0xffff); }

  // What goes into the header. Over bytes that already contain their checksum it is 0 exactly when
  // they are intact.
  [[nodiscard]] uint16_t finish() const;

 private:
  void add_sum(uint16_t piece_sum, size_t length);

  uint64_t sum_ = 0;
  bool odd_ = false;  // the bytes so far are odd in number
};

// Of bytes that are there in one piece.
uint16_t checksum_of(ByteView bytes);

}  // namespace sandbox::net
