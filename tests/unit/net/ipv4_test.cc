#include "net/ipv4.h"

#include <gtest/gtest.h>

#include "unit/net/support.h"

namespace sandbox::net {
namespace {

using test::kGuestIp;
using test::kServerIp;

TEST(Ipv4Parse, ReadsBackWhatWasWritten) {
  const Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolUdp, Bytes{1, 2, 3});
  Ipv4Packet packet;
  ASSERT_EQ(parse_ipv4(bytes, packet), Ipv4Error::kNone);
  EXPECT_EQ(packet.source, kGuestIp);
  EXPECT_EQ(packet.destination, kServerIp);
  EXPECT_EQ(packet.protocol, kProtocolUdp);
  EXPECT_EQ(packet.ttl, 64);
  EXPECT_FALSE(packet.is_fragment());
  EXPECT_EQ(Bytes(packet.payload.begin(), packet.payload.end()), (Bytes{1, 2, 3}));
}

TEST(Ipv4Parse, CutsLinkPadding) {
  Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolUdp, Bytes{1, 2, 3});
  bytes.resize(46);
  Ipv4Packet packet;
  ASSERT_EQ(parse_ipv4(bytes, packet), Ipv4Error::kNone);
  EXPECT_EQ(packet.payload.size(), 3U);
}

struct BadHeader {
  const char* name;
  Ipv4Error error;
  size_t at;
  uint8_t value;
};

// Changes one byte and, unless the checksum itself is the case, repairs the checksum.
Bytes damaged(const BadHeader& c) {
  Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolTcp, Bytes(20));
  bytes[c.at] = c.value;
  if (c.error == Ipv4Error::kChecksum) return bytes;
  bytes[10] = bytes[11] = 0;
  const uint16_t sum = checksum_of(ByteView(bytes).first(kIpv4Header));
  bytes[10] = static_cast<uint8_t>(sum >> 8);
  bytes[11] = static_cast<uint8_t>(sum);
  return bytes;
}

TEST(Ipv4Parse, RefusesBadHeaders) {
  const BadHeader cases[] = {
      {"version 6", Ipv4Error::kVersion, 0, 0x65},
      {"header of four words", Ipv4Error::kLength, 0, 0x44},
      {"options", Ipv4Error::kOptions, 0, 0x46},
      {"total length beyond the bytes", Ipv4Error::kLength, 2, 1},
      {"total length below the header", Ipv4Error::kLength, 3, 19},
      {"checksum", Ipv4Error::kChecksum, 8, 63},
      {"time to live", Ipv4Error::kTtl, 8, 0},
  };
  for (const auto& c : cases) {
    Ipv4Packet packet;
    EXPECT_EQ(parse_ipv4(damaged(c), packet), c.error) << c.name;
  }
}

TEST(Ipv4Parse, RefusesEveryTruncationOfAHeader) {
  const Bytes bytes = test::packet(kGuestIp, kServerIp, kProtocolTcp, Bytes(20));
  for (size_t size = 0; size < bytes.size(); ++size) {
    Ipv4Packet packet;
    EXPECT_NE(parse_ipv4(ByteView(bytes).first(size), packet), Ipv4Error::kNone) << size;
  }
}

}  // namespace
}  // namespace sandbox::net
