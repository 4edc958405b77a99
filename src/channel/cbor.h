#pragma once
// The part of CBOR (RFC 8949) that control messages need: unsigned integers, byte strings, arrays,
// maps, true and false; definite lengths, shortest form only (section 4.2.1), so a value has
// exactly one spelling.
//
// The reader pulls: the caller asks for the type it expects and there is no generic tree, hence no
// recursion whose depth the other side could choose, and no allocation larger than the bytes that
// are really there. Like ByteReader it stays failed after the first violation and yields zeros;
// test ok() before trusting what was read.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace sandbox::channel {

class CborWriter {
 public:
  void number(uint64_t value) { head(0, value); }
  void bytes(ByteView value);
  void text(std::string_view value) { bytes(as_bytes(value)); }
  void boolean(bool value) { out_.u8(value ? 0xf5 : 0xf4); }
  void array(size_t items) { head(4, items); }
  void map(size_t pairs) { head(5, pairs); }
  Bytes take() { return out_.take(); }

 private:
  void head(uint8_t major, uint64_t value);
  ByteWriter out_;
};

class CborReader {
 public:
  explicit CborReader(ByteView bytes) : in_(bytes) {}

  [[nodiscard]] bool ok() const { return in_.ok(); }
  [[nodiscard]] bool done() const { return in_.done(); }  // ok, and nothing left over
  void fail() { in_.fail(); }

  uint64_t number(uint64_t low, uint64_t high);  // outside the range: failed
  ByteView bytes();
  std::string text() { return std::string(as_text(bytes())); }
  std::string c_text();  // without zero bytes
  bool boolean();
  // Items that follow. Each item takes at least one byte, so a count above what remains is failed
  // here.
  size_t array();
  size_t map();

 private:
  uint64_t head(uint8_t major);
  ByteReader in_;
};

}  // namespace sandbox::channel
