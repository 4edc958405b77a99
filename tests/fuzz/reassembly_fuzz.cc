// fuzz-libs: sandbox_net
// Fragments against a plain model: what is put together must be exactly the union of its pieces,
// each byte given once. Input: five bytes per fragment (id, offset in 8-byte units twice, length in
// 8-byte units, flags).

#include <algorithm>
#include <cstdlib>
#include <map>

#include "net/reassembly.h"

namespace {

using namespace sandbox;       // NOLINT
using namespace sandbox::net;  // NOLINT

// The byte that belongs at each place of each datagram; pieces carry it, so a byte out of place
// shows.
uint8_t byte_at(uint16_t id, size_t at) {
  return static_cast<uint8_t>(at * 7 + at / 256 + id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Reassembly reassembly;
  ByteReader in({data, size});
  Instant now;
  while (in.remaining() >= 5) {
    const uint16_t id = in.u8() & 15;
    const size_t offset = size_t{8} * (in.be16() & 0x1FFF);
    const size_t units = in.u8();
    const uint8_t flags = in.u8();
    Bytes payload(units * 8 + (flags & 7));
    for (size_t i = 0; i < payload.size(); ++i) payload[i] = byte_at(id, offset + i);
    Ipv4Packet fragment;
    fragment.destination = {0x08080808};
    fragment.protocol = kProtocolUdp;
    fragment.id = id;
    fragment.fragment_offset = static_cast<uint16_t>(offset);
    fragment.more_fragments = (flags & 8) != 0;
    fragment.payload = payload;
    if (!fragment.is_fragment()) continue;
    const auto result = reassembly.add(fragment, now);
    if (reassembly.waiting() > Reassembly::kAtOnce) std::abort();
    if (result.outcome == Reassembly::Outcome::kComplete) {
      const ByteView whole = result.packet.payload;
      if (whole.empty() || whole.size() > 65515) std::abort();
      for (size_t i = 0; i < whole.size(); ++i)
        if (whole[i] != byte_at(id, i)) std::abort();
    }
    now = now + std::chrono::milliseconds(flags >> 4) * 100;
  }
  return 0;
}
