#include "net/udp.h"

namespace sandbox::net {

namespace {

void put16(uint8_t* out, uint16_t value) {
  out[0] = static_cast<uint8_t>(value >> 8);
  out[1] = static_cast<uint8_t>(value);
}

}  // namespace

UdpError parse_udp(const Ipv4Packet& packet, UdpDatagram& out) {
  if (packet.payload.size() < kUdpHeader) return UdpError::kTruncated;
  ByteReader in(packet.payload);
  out.source_port = in.be16();
  out.destination_port = in.be16();
  const size_t length = in.be16();
  const uint16_t checksum = in.be16();
  if (length < kUdpHeader || length > packet.payload.size()) return UdpError::kLength;
  const ByteView datagram = packet.payload.first(length);
  if (checksum != 0) {
    const uint64_t pseudo =
        pseudo_header_sum(packet.source, packet.destination, kProtocolUdp, length);
    if (checksum_finish(checksum_add(pseudo, datagram)) != 0) return UdpError::kChecksum;
  }
  if (out.source_port == 0 || out.destination_port == 0) return UdpError::kPort;
  out.payload = datagram.subspan(kUdpHeader);
  return UdpError::kNone;
}

void write_udp(uint8_t* out, Ipv4 source, uint16_t source_port, Ipv4 destination,
               uint16_t destination_port, size_t payload_size) {
  const size_t length = kUdpHeader + payload_size;
  put16(out, source_port);
  put16(out + 2, destination_port);
  put16(out + 4, static_cast<uint16_t>(length));
  put16(out + 6, 0);
  const uint64_t pseudo = pseudo_header_sum(source, destination, kProtocolUdp, length);
  const uint16_t checksum = checksum_finish(checksum_add(pseudo, {out, length}));
  put16(out + 6, checksum == 0 ? 0xFFFF : checksum);  // zero would mean "none"
}

}  // namespace sandbox::net
