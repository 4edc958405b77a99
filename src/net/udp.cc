#include "net/udp.h"

#include "net/big_endian.h"

namespace sandbox::net {

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
    Checksum sum = pseudo_header(packet.source, packet.destination, kProtocolUdp, length);
    sum.add(datagram);
    if (sum.finish() != 0) return UdpError::kChecksum;
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
  Checksum sum = pseudo_header(source, destination, kProtocolUdp, length);
  sum.add({out, length});
  const uint16_t checksum = sum.finish();
  put16(out + 6, checksum == 0 ? 0xFFFF : checksum);  // zero would mean "none"
}

}  // namespace sandbox::net
