#include "net/icmp.h"

#include <algorithm>
#include <cstring>

#include "net/big_endian.h"

namespace sandbox::net {

namespace {

constexpr uint8_t kTypeUnreachable = 3;

void finish(uint8_t* out, size_t size) {
  put16(out + 2, 0);
  put16(out + 2, checksum_of({out, size}));
}

}  // namespace

std::optional<IcmpEcho> parse_icmp_echo(ByteView bytes) {
  ByteReader in(bytes);
  IcmpEcho out;
  out.type = in.u8();
  const uint8_t code = in.u8();
  in.skip(2);  // checksum
  out.identifier = in.be16();
  out.sequence = in.be16();
  out.payload = in.rest();
  const bool echo = out.type == IcmpEcho::kRequest || out.type == IcmpEcho::kReply;
  if (!in.ok() || !echo || code != 0) return std::nullopt;
  if (checksum_of(bytes) != 0) return std::nullopt;
  return out;
}

void write_icmp_echo(uint8_t* out, uint8_t type, uint16_t identifier, uint16_t sequence,
                     size_t payload_size) {
  out[0] = type;
  out[1] = 0;
  put16(out + 4, identifier);
  put16(out + 6, sequence);
  finish(out, kIcmpHeader + payload_size);
}

size_t write_icmp_unreachable(uint8_t* out, Unreachable code, ByteView offending_packet) {
  const size_t quoted = std::min(offending_packet.size(), kIcmpQuote);
  std::memset(out, 0, kIcmpHeader);
  out[0] = kTypeUnreachable;
  out[1] = static_cast<uint8_t>(code);
  std::ranges::copy(offending_packet.first(quoted), out + kIcmpHeader);
  finish(out, kIcmpHeader + quoted);
  return kIcmpHeader + quoted;
}

}  // namespace sandbox::net
