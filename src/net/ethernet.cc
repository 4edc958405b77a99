#include "net/ethernet.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "net/big_endian.h"

namespace sandbox::net {

std::optional<MacAddress> MacAddress::parse(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() != 6) return std::nullopt;
  MacAddress out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto byte = from_hex(parts[i]);
    if (!byte || byte->size() != 1) return std::nullopt;
    out.bytes[i] = (*byte)[0];
  }
  return out;
}

std::string MacAddress::text() const {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2],
                     bytes[3], bytes[4], bytes[5]);
}

std::optional<EthernetFrame> parse_ethernet(ByteView frame) {
  ByteReader in(frame);
  EthernetFrame out;
  std::ranges::copy(in.take(6), out.destination.bytes.begin());
  std::ranges::copy(in.take(6), out.source.bytes.begin());
  out.type = in.be16();
  out.payload = in.rest();
  if (!in.ok()) return std::nullopt;
  return out;
}

void write_ethernet(uint8_t* out, const MacAddress& destination, const MacAddress& source,
                    uint16_t type) {
  std::ranges::copy(destination.bytes, out);
  std::ranges::copy(source.bytes, out + 6);
  put16(out + 12, type);
}

}  // namespace sandbox::net
