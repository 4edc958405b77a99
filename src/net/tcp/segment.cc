#include "net/tcp/segment.h"

#include "net/tcp/checksum.h"

namespace sandbox::tcp {
namespace {

constexpr uint8_t kProtocolTcp = 6;
constexpr uint8_t kOptionEnd = 0, kOptionNop = 1, kOptionMss = 2, kOptionScale = 3;

uint16_t get16(const uint8_t* at) {
  return static_cast<uint16_t>((at[0] << 8) | at[1]);
}
uint32_t get32(const uint8_t* at) {
  return (static_cast<uint32_t>(get16(at)) << 16) | get16(at + 2);
}
void put16(uint8_t* at, uint16_t v) {
  at[0] = static_cast<uint8_t>(v >> 8);
  at[1] = static_cast<uint8_t>(v);
}
void put32(uint8_t* at, uint32_t v) {
  put16(at, static_cast<uint16_t>(v >> 16));
  put16(at + 2, static_cast<uint16_t>(v));
}

Checksum pseudo_header(Ipv4 source, Ipv4 destination, size_t tcp_size) {
  Checksum sum;
  sum.add32(source.value);
  sum.add32(destination.value);
  sum.add16(kProtocolTcp);
  sum.add16(static_cast<uint16_t>(tcp_size));
  return sum;
}

// Options are kind, length, value; the length counts all three. A length that cannot be ends the
// list: what follows it has no known beginning.
void parse_options(ByteView options, SegmentView& segment) {
  while (!options.empty() && options[0] != kOptionEnd) {
    if (options[0] == kOptionNop) {
      options = options.subspan(1);
      continue;
    }
    if (options.size() < 2 || options[1] < 2 || options[1] > options.size()) return;
    const size_t size = options[1];
    if (options[0] == kOptionMss && size == 4) segment.mss = get16(options.data() + 2);
    if (options[0] == kOptionScale && size == 3) segment.scale = options[2];
    options = options.subspan(size);
  }
}

size_t options_size(const SegmentSpec& spec) {
  return (spec.mss ? 4 : 0) + (spec.scale ? 4 : 0);  // the scale is padded in front
}

void write_ip_header(const Tuple& tuple, size_t size, uint8_t* out) {
  put32(out, 0x45000000 | static_cast<uint32_t>(size));
  put32(out + 4, 0x00004000);  // identification 0 is fine where nothing is ever fragmented (RFC
                               // 6864); don't fragment
  put32(out + 8, 0x40060000);  // 64 hops, TCP
  put32(out + 12, tuple.host_ip.value);
  put32(out + 16, tuple.guest_ip.value);
  Checksum sum;
  sum.add({out, kIpHeader});
  put16(out + 10, sum.finish());
}

}  // namespace

ParsedSegment parse_segment(Ipv4 source, Ipv4 destination, ByteView ip_payload) {
  if (ip_payload.size() < kTcpHeader) return {{}, SegmentError::kShort};
  const uint8_t* header = ip_payload.data();
  const size_t header_size = static_cast<size_t>(header[12] >> 4) * 4;
  if (header_size < kTcpHeader || header_size > ip_payload.size()) {
    return {{}, SegmentError::kBadOffset};
  }
  Checksum sum = pseudo_header(source, destination, ip_payload.size());
  sum.add(ip_payload);
  if (sum.finish() != 0) return {{}, SegmentError::kBadChecksum};

  SegmentView segment;
  segment.source_port = get16(header);
  segment.destination_port = get16(header + 2);
  segment.seq = {get32(header + 4)};
  segment.ack = {get32(header + 8)};
  segment.flags = header[13];
  segment.window = get16(header + 14);
  segment.payload = ip_payload.subspan(header_size);
  if (segment.has(flag::kSyn)) {
    parse_options(ip_payload.subspan(kTcpHeader, header_size - kTcpHeader), segment);
  }
  return {segment, {}};
}

size_t packet_size(const SegmentSpec& spec) {
  return kIpHeader + kTcpHeader + options_size(spec) + spec.payload.size();
}

void write_segment(const Tuple& tuple, const SegmentSpec& spec, std::span<uint8_t> out) {
  const size_t size = packet_size(spec);
  const size_t header_size = kTcpHeader + options_size(spec);
  write_ip_header(tuple, size, out.data());

  uint8_t* tcp = out.data() + kIpHeader;
  put16(tcp, tuple.host_port);
  put16(tcp + 2, tuple.guest_port);
  put32(tcp + 4, spec.seq.value);
  put32(tcp + 8, spec.ack.value);
  tcp[12] = static_cast<uint8_t>(header_size / 4 << 4);
  tcp[13] = spec.flags;
  put16(tcp + 14, spec.window);
  put32(tcp + 16, 0);  // checksum, for now; urgent pointer
  uint8_t* option = tcp + kTcpHeader;
  if (spec.mss) {
    put32(option, (uint32_t{kOptionMss} << 24) | (4u << 16) | *spec.mss);
    option += 4;
  }
  if (spec.scale) {
    put32(option,
          (uint32_t{kOptionNop} << 24) | (uint32_t{kOptionScale} << 16) | (3u << 8) | *spec.scale);
  }

  Checksum sum = pseudo_header(tuple.host_ip, tuple.guest_ip, size - kIpHeader);
  sum.add({tcp, header_size});
  uint8_t* payload = tcp + header_size;
  sum.add_copy(spec.payload.first, payload);
  sum.add_copy(spec.payload.second, payload + spec.payload.first.size());
  put16(tcp + 16, sum.finish());
}

}  // namespace sandbox::tcp
