#pragma once
// Bounds-checked reading and writing of packed bytes. A reader that ran past its end stays failed
// and yields zeros, so a parser may read a whole header and test ok() once; it must test before it
// trusts what it read.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sandbox {

using Bytes = std::vector<uint8_t>;
using ByteView = std::span<const uint8_t>;

inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] size_t position() const { return at_; }
  [[nodiscard]] size_t remaining() const { return bytes_.size() - at_; }
  [[nodiscard]] bool done() const { return ok_ && remaining() == 0; }

  uint8_t u8() { return static_cast<uint8_t>(number(1, true)); }
  uint16_t be16() { return static_cast<uint16_t>(number(2, true)); }
  uint32_t be24() { return static_cast<uint32_t>(number(3, true)); }
  uint32_t be32() { return static_cast<uint32_t>(number(4, true)); }
  uint64_t be64() { return number(8, true); }
  uint16_t le16() { return static_cast<uint16_t>(number(2, false)); }
  uint32_t le32() { return static_cast<uint32_t>(number(4, false)); }
  uint64_t le64() { return number(8, false); }

  ByteView take(size_t count) {
    if (!ok_ || count > remaining()) {
      ok_ = false;
      return {};
    }
    ByteView out = bytes_.subspan(at_, count);
    at_ += count;
    return out;
  }
  void skip(size_t count) { (void)take(count); }
  ByteView rest() { return take(remaining()); }
  void fail() { ok_ = false; }

 private:
  uint64_t number(size_t size, bool big) {
    const ByteView view = take(size);
    uint64_t value = 0;
    for (size_t i = 0; i < view.size(); ++i) {
      const uint64_t byte = view[i];
      value |= byte << (8 * (big ? view.size() - 1 - i : i));
    }
    return value;
  }

  ByteView bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Appends to a vector that it owns; not for the frame path, which writes into fixed buffers.
class ByteWriter {
 public:
  void u8(uint8_t v) { out_.push_back(v); }
  void be16(uint16_t v) { number(v, 2, true); }
  void be24(uint32_t v) { number(v, 3, true); }
  void be32(uint32_t v) { number(v, 4, true); }
  void be64(uint64_t v) { number(v, 8, true); }
  void le16(uint16_t v) { number(v, 2, false); }
  void le32(uint32_t v) { number(v, 4, false); }
  void le64(uint64_t v) { number(v, 8, false); }
  void bytes(ByteView v) { out_.insert(out_.end(), v.begin(), v.end()); }
  void text(std::string_view v) { bytes(as_bytes(v)); }
  void zeros(size_t count) { out_.insert(out_.end(), count, 0); }
  // Overwrites a big-endian 16-bit field written earlier, such as a length.
  void patch_be16(size_t at, uint16_t v) {
    out_.at(at) = static_cast<uint8_t>(v >> 8);
    out_.at(at + 1) = static_cast<uint8_t>(v);
  }
  [[nodiscard]] size_t size() const { return out_.size(); }
  [[nodiscard]] const Bytes& view() const { return out_; }
  Bytes take() { return std::move(out_); }

 private:
  void number(uint64_t v, int size, bool big) {
    for (int i = 0; i < size; ++i) {
      const int shift = 8 * (big ? size - 1 - i : i);
      out_.push_back(static_cast<uint8_t>(v >> shift));
    }
  }
  Bytes out_;
};

}  // namespace sandbox
