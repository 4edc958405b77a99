#pragma once
// Segments as a guest would build and read them, written apart from the library so that both cannot
// be wrong alike.

#include "base/bytes.h"
#include "net/tcp/segment.h"

namespace sandbox::tcp::testing {

// RFC 1071 word by word.
inline uint16_t plain_checksum(ByteView bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += static_cast<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
    sum = (sum & 0xffff) + (sum >> 16);
  }
  return static_cast<uint16_t>(~sum);
}

inline uint32_t pseudo_sum(Ipv4 a, Ipv4 b, size_t size) {
  uint32_t sum = 6 + static_cast<uint32_t>(size);
  for (const Ipv4 ip : {a, b}) sum += (ip.value >> 16) + (ip.value & 0xffff);
  return (sum & 0xffff) + (sum >> 16);
}

struct GuestSegment {
  Tuple tuple;
  uint32_t seq = 0, ack = 0;
  uint8_t flags = 0;
  uint16_t window = 65535;
  Bytes options;  // padded here
  Bytes payload;
};

// The payload of the IPv4 packet.
inline Bytes build(const GuestSegment& s) {
  ByteWriter out;
  Bytes options = s.options;
  while (options.size() % 4 != 0) options.push_back(0);
  out.be16(s.tuple.guest_port);
  out.be16(s.tuple.host_port);
  out.be32(s.seq);
  out.be32(s.ack);
  out.u8(static_cast<uint8_t>((5 + options.size() / 4) << 4));
  out.u8(s.flags);
  out.be16(s.window);
  out.be32(0);
  out.bytes(options);
  out.bytes(s.payload);
  const uint16_t sum =
      plain_checksum(out.view(), pseudo_sum(s.tuple.guest_ip, s.tuple.host_ip, out.size()));
  out.patch_be16(16, sum);
  return out.take();
}

struct StackSegment {
  bool intact = false;  // sizes and both checksums
  Tuple tuple;
  uint32_t seq = 0, ack = 0;
  uint8_t flags = 0;
  uint16_t window = 0;
  int mss = -1, scale = -1;
  ByteView payload;
};

// Reads a packet the stack wrote.
inline StackSegment read_packet(ByteView packet) {
  StackSegment s;
  if (packet.size() < 40) return s;
  ByteReader ip(packet);
  const bool version = ip.u8() == 0x45 && ip.u8() == 0;
  const bool length = ip.be16() == packet.size();
  const bool rest = ip.be32() == 0x4000 && ip.u8() == 64 && ip.u8() == 6;
  ip.skip(2);
  s.tuple.host_ip = {ip.be32()};
  s.tuple.guest_ip = {ip.be32()};
  const ByteView tcp = packet.subspan(20);
  s.intact = version && length && rest && plain_checksum(packet.first(20)) == 0 &&
             plain_checksum(tcp, pseudo_sum(s.tuple.host_ip, s.tuple.guest_ip, tcp.size())) == 0;
  s.tuple.host_port = ip.be16();
  s.tuple.guest_port = ip.be16();
  s.seq = ip.be32();
  s.ack = ip.be32();
  const size_t header = static_cast<size_t>(ip.u8() >> 4) * 4;
  s.flags = ip.u8();
  s.window = ip.be16();
  ip.skip(4);
  if (header < 20 || header > tcp.size()) return {};
  for (ByteReader options(tcp.subspan(20, header - 20)); options.ok() && options.remaining() > 0;) {
    const uint8_t kind = options.u8();
    if (kind == 0) break;
    if (kind == 1) continue;
    const uint8_t size = options.u8();
    if (kind == 2 && size == 4)
      s.mss = options.be16();
    else if (kind == 3 && size == 3)
      s.scale = options.u8();
    else
      s.intact = false;  // the stack writes no others
  }
  s.payload = tcp.subspan(header);
  return s;
}

}  // namespace sandbox::tcp::testing
