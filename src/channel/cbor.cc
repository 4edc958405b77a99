#include "channel/cbor.h"

namespace sandbox::channel {
namespace {

// RFC 8949 section 3: additional information 24..27 announces an argument of 1, 2, 4 or 8 bytes.
constexpr uint8_t kOneByte = 24;
constexpr uint8_t kTwoBytes = 25;
constexpr uint8_t kFourBytes = 26;
constexpr uint8_t kEightBytes = 27;

}  // namespace

void CborWriter::head(uint8_t major, uint64_t value) {
  const auto initial = [&](uint64_t low) {
    out_.u8(static_cast<uint8_t>(uint64_t{major} << 5U | low));
  };
  if (value < kOneByte) {
    initial(value);
  } else if (value <= UINT8_MAX) {
    initial(kOneByte);
    out_.u8(static_cast<uint8_t>(value));
  } else if (value <= UINT16_MAX) {
    initial(kTwoBytes);
    out_.be16(static_cast<uint16_t>(value));
  } else if (value <= UINT32_MAX) {
    initial(kFourBytes);
    out_.be32(static_cast<uint32_t>(value));
  } else {
    initial(kEightBytes);
    out_.be64(value);
  }
}

void CborWriter::bytes(ByteView value) {
  head(2, value.size());
  out_.bytes(value);
}

uint64_t CborReader::head(uint8_t major) {
  const uint8_t initial = in_.u8();
  if (initial >> 5U != major) {
    in_.fail();
    return 0;
  }
  const uint8_t low = initial & 0x1f;
  uint64_t value = low;
  uint64_t least = 0;  // what a longer form must exceed to be the shortest
  switch (low) {
    case kOneByte:
      value = in_.u8(), least = kOneByte;
      break;
    case kTwoBytes:
      value = in_.be16(), least = uint64_t{UINT8_MAX} + 1;
      break;
    case kFourBytes:
      value = in_.be32(), least = uint64_t{UINT16_MAX} + 1;
      break;
    case kEightBytes:
      value = in_.be64(), least = uint64_t{UINT32_MAX} + 1;
      break;
    default:
      if (low > kEightBytes) in_.fail();
  }
  if (value < least) in_.fail();
  return in_.ok() ? value : 0;
}

uint64_t CborReader::number(uint64_t low, uint64_t high) {
  const uint64_t value = head(0);
  if (value < low || value > high) in_.fail();
  return in_.ok() ? value : 0;
}

ByteView CborReader::bytes() {
  const uint64_t size = head(2);
  if (size > in_.remaining()) {
    in_.fail();
    return {};
  }
  return in_.take(static_cast<size_t>(size));
}

std::string CborReader::c_text() {
  const ByteView view = bytes();
  for (const uint8_t byte : view) {
    if (byte == 0) in_.fail();
  }
  return ok() ? std::string(as_text(view)) : std::string();
}

bool CborReader::boolean() {
  const uint8_t byte = in_.u8();
  if (byte != 0xf4 && byte != 0xf5) in_.fail();
  return byte == 0xf5;
}

size_t CborReader::array() {
  const uint64_t items = head(4);
  if (items > in_.remaining()) in_.fail();
  return ok() ? static_cast<size_t>(items) : 0;
}

size_t CborReader::map() {
  const uint64_t pairs = head(5);
  if (pairs > in_.remaining() / 2) in_.fail();
  return ok() ? static_cast<size_t>(pairs) : 0;
}

}  // namespace sandbox::channel
