#include "differential/segment.h"

#include "net/big_endian.h"
#include "net/ipv4.h"
#include "unit/net/tcp/packet.h"

namespace sandbox::tcp::differential {
namespace {

using net::get16, net::get32;

void spoil(Bytes& tcp, Damage damage) {
  if (damage == Damage::kChecksum) tcp[17] ^= 0x10;
  if (damage == Damage::kShortOffset) tcp[12] = 4 << 4;
  if (damage == Damage::kLongOffset) tcp[12] = 15 << 4;
}

}  // namespace

SynOptions read_options(ByteView options) {
  SynOptions found;
  for (ByteReader reader(options); reader.remaining() > 0;) {
    const uint8_t kind = reader.u8();
    if (kind == 0) break;
    if (kind == 1) continue;
    const uint8_t size = reader.u8();
    if (size < 2) break;
    const ByteView value = reader.take(size - 2u);
    if (!reader.ok()) break;
    if (kind == 2 && value.size() == 2) found.mss = get16(value.data());
    if (kind == 3 && value.size() == 1) found.scale = value[0];
  }
  return found;
}

Bytes ip_packet(const Outgoing& segment) {
  Bytes tcp = testing::build({.tuple = segment.tuple,
                              .seq = segment.seq.value,
                              .ack = segment.ack.value,
                              .flags = segment.flags,
                              .window = segment.window,
                              .options = segment.options,
                              .payload = segment.payload});
  spoil(tcp, segment.damage);
  Bytes packet(net::kIpv4Header);
  net::write_ipv4(packet.data(), segment.tuple.guest_ip, segment.tuple.host_ip, net::kProtocolTcp,
                  tcp.size());
  packet.insert(packet.end(), tcp.begin(), tcp.end());
  return packet;
}

std::optional<HeardPacket> read_packet(ByteView packet) {
  if (packet.size() < 40 || packet[0] != 0x45 || packet[9] != net::kProtocolTcp) return {};
  if (get16(packet.data() + 2) != packet.size()) return {};
  Heard heard;
  heard.tuple.host_ip = {get32(packet.data() + 12)};
  heard.tuple.guest_ip = {get32(packet.data() + 16)};
  const ByteView tcp = packet.subspan(20);
  const uint32_t pseudo =
      testing::pseudo_sum(heard.tuple.host_ip, heard.tuple.guest_ip, tcp.size());
  if (testing::plain_checksum(packet.first(20)) != 0) return {};
  if (testing::plain_checksum(tcp, pseudo) != 0) return {};
  const size_t header = static_cast<size_t>(tcp[12] >> 4) * 4;
  if (header < kTcpHeader || header > tcp.size()) return {};
  heard.tuple.host_port = get16(tcp.data());
  heard.tuple.guest_port = get16(tcp.data() + 2);
  heard.seq = {get32(tcp.data() + 4)};
  heard.ack = {get32(tcp.data() + 8)};
  heard.flags = tcp[13] & 0x3f;
  heard.window = get16(tcp.data() + 14);
  heard.options = read_options(tcp.subspan(kTcpHeader, header - kTcpHeader));
  const ByteView payload = tcp.subspan(header);
  heard.length = static_cast<uint32_t>(payload.size());
  return HeardPacket{heard, payload};
}

}  // namespace sandbox::tcp::differential
