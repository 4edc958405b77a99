#include "net/tcp/segment.h"

#include "net/big_endian.h"
#include "net/ipv4.h"

namespace sandbox::tcp {
namespace {

using net::get16, net::get32, net::put16, net::put32;

constexpr uint8_t kOptionEnd = 0, kOptionNop = 1, kOptionMss = 2, kOptionScale = 3;

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
    // An MSS of 0 says nothing.
    if (options[0] == kOptionMss && size == 4 && get16(options.data() + 2) != 0) {
      segment.mss = get16(options.data() + 2);
    }
    if (options[0] == kOptionScale && size == 3) segment.scale = options[2];
    options = options.subspan(size);
  }
}

size_t options_size(const SegmentSpec& spec) {
  return (spec.mss ? 4 : 0) + (spec.scale ? 4 : 0);  // the scale is padded in front
}

}  // namespace

ParsedSegment parse_segment(Ipv4 source, Ipv4 destination, ByteView ip_payload) {
  if (ip_payload.size() < kTcpHeader) return {{}, SegmentError::kShort};
  const uint8_t* header = ip_payload.data();
  const size_t header_size = static_cast<size_t>(header[12] >> 4) * 4;
  if (header_size < kTcpHeader || header_size > ip_payload.size()) {
    return {{}, SegmentError::kBadOffset};
  }
  net::Checksum sum = net::pseudo_header(source, destination, net::kProtocolTcp, ip_payload.size());
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
  return net::kIpv4Header + kTcpHeader + options_size(spec) + spec.payload.size();
}

void write_segment(const Tuple& tuple, const SegmentSpec& spec, std::span<uint8_t> out) {
  const size_t header_size = kTcpHeader + options_size(spec);
  const size_t size = header_size + spec.payload.size();
  net::write_ipv4(out.data(), tuple.host_ip, tuple.guest_ip, net::kProtocolTcp, size);

  uint8_t* tcp = out.data() + net::kIpv4Header;
  put16(tcp, tuple.host_port);
  put16(tcp + 2, tuple.guest_port);
  put32(tcp + 4, spec.seq.value);
  put32(tcp + 8, spec.ack.value);
  tcp[12] = static_cast<uint8_t>(header_size / 4 << 4);
  tcp[13] = spec.flags;
  put16(tcp + 14, spec.window);
  put16(tcp + 16, 0);  // the checksum, which is summed up as 0
  put16(tcp + 18, 0);  // no urgent data
  uint8_t* option = tcp + kTcpHeader;
  if (spec.mss) {
    put32(option, (uint32_t{kOptionMss} << 24) | (4u << 16) | *spec.mss);
    option += 4;
  }
  if (spec.scale) {
    put32(option,
          (uint32_t{kOptionNop} << 24) | (uint32_t{kOptionScale} << 16) | (3u << 8) | *spec.scale);
  }

  net::Checksum sum = net::pseudo_header(tuple.host_ip, tuple.guest_ip, net::kProtocolTcp, size);
  sum.add({tcp, header_size});
  uint8_t* payload = tcp + header_size;
  sum.add_copy(spec.payload.first, payload);
  sum.add_copy(spec.payload.second, payload + spec.payload.first.size());
  put16(tcp + 16, sum.finish());
}

}  // namespace sandbox::tcp
