#include "net/ipv4.h"

#include "net/big_endian.h"

namespace sandbox::net {

namespace {

constexpr uint16_t kDontFragment = 0x4000;
constexpr uint16_t kMoreFragments = 0x2000;

void write_header(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                  size_t payload_size, uint16_t id, uint16_t fragment_field) {
  out[0] = 0x45;  // version 4, five words
  out[1] = 0;
  put16(out + 2, static_cast<uint16_t>(kIpv4Header + payload_size));
  put16(out + 4, id);
  put16(out + 6, fragment_field);
  out[8] = 64;
  out[9] = protocol;
  put16(out + 10, 0);
  put32(out + 12, source.value);
  put32(out + 16, destination.value);
  put16(out + 10, checksum_of({out, kIpv4Header}));
}

}  // namespace

Checksum pseudo_header(Ipv4 source, Ipv4 destination, uint8_t protocol, size_t length) {
  Checksum sum;
  sum.add32(source.value);
  sum.add32(destination.value);
  sum.add16(protocol);
  sum.add16(static_cast<uint16_t>(length));
  return sum;
}

Ipv4Error parse_ipv4(ByteView bytes, Ipv4Packet& out) {
  if (bytes.size() < kIpv4Header) return Ipv4Error::kTruncated;
  ByteReader in(bytes);
  const uint8_t version_and_size = in.u8();
  if (version_and_size >> 4 != 4) return Ipv4Error::kVersion;
  const size_t header = size_t{4} * (version_and_size & 0x0F);
  if (header < kIpv4Header) return Ipv4Error::kLength;
  if (header > kIpv4Header) return Ipv4Error::kOptions;
  in.skip(1);  // service class
  const size_t total = in.be16();
  if (total < kIpv4Header || total > bytes.size()) return Ipv4Error::kLength;
  out.id = in.be16();
  const uint16_t fragment = in.be16();
  out.ttl = in.u8();
  out.protocol = in.u8();
  in.skip(2);  // checksum, verified below over the whole header
  out.source = {in.be32()};
  out.destination = {in.be32()};
  if (checksum_of(bytes.first(kIpv4Header)) != 0) return Ipv4Error::kChecksum;
  if (out.ttl == 0) return Ipv4Error::kTtl;
  out.more_fragments = (fragment & kMoreFragments) != 0;
  out.fragment_offset = static_cast<uint16_t>((fragment & 0x1FFF) * 8);
  out.whole = bytes.first(total);
  out.payload = out.whole.subspan(kIpv4Header);
  return Ipv4Error::kNone;
}

void write_ipv4(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                size_t payload_size) {
  write_header(out, source, destination, protocol, payload_size, 0, kDontFragment);
}

void write_ipv4_fragment(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                         size_t payload_size, const FragmentPlace& place) {
  const auto field = static_cast<uint16_t>(place.offset / 8 | (place.more ? kMoreFragments : 0));
  write_header(out, source, destination, protocol, payload_size, place.id, field);
}

}  // namespace sandbox::net
