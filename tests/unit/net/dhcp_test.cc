#include "net/dhcp.h"

#include <gtest/gtest.h>

#include <map>

#include "unit/net/support.h"

namespace sandbox::net {
namespace {

using test::kGatewayIp;
using test::kGuestIp;
using test::kGuestMac;

constexpr uint8_t kDiscover = 1;
constexpr uint8_t kOffer = 2;
constexpr uint8_t kRequest = 3;
constexpr uint8_t kAck = 5;
constexpr uint8_t kNak = 6;

const DhcpLease kLease{.client_mac = kGuestMac,
                       .client_ip = kGuestIp,
                       .server_ip = kGatewayIp,
                       .prefix = 29,
                       .mtu = 9000,
                       .seconds = 3600};

struct Message {
  uint8_t type = kDiscover;
  MacAddress mac = kGuestMac;
  uint16_t flags = 0;
  uint32_t client_ip = 0;
  std::map<uint8_t, Bytes> options = {};

  Bytes bytes() const {
    ByteWriter w;
    w.bytes(Bytes{1, 1, 6, 0});
    w.be32(0xABCD1234);
    w.be16(0);
    w.be16(flags);
    w.be32(client_ip);
    w.zeros(12);
    w.bytes(mac.bytes);
    w.zeros(236 - w.size());
    w.be32(0x63825363);
    w.bytes(Bytes{0, 53, 1, type});
    for (const auto& [code, value] : options) {
      w.u8(code);
      w.u8(static_cast<uint8_t>(value.size()));
      w.bytes(value);
    }
    w.u8(255);
    return w.take();
  }
};

Bytes ip_option(Ipv4 ip) {
  ByteWriter w;
  w.be32(ip.value);
  return w.take();
}

std::map<uint8_t, Bytes> options_of(const Bytes& message) {
  std::map<uint8_t, Bytes> out;
  ByteReader in(ByteView(message).subspan(240));
  while (in.remaining() > 0) {
    const uint8_t code = in.u8();
    if (code == 255) break;
    const ByteView value = in.take(in.u8());
    out[code] = Bytes(value.begin(), value.end());
  }
  return out;
}

TEST(Dhcp, OffersTheLeaseWithAllItsOptions) {
  const auto reply = answer_dhcp(kLease, Message{}.bytes());
  ASSERT_TRUE(reply);
  EXPECT_GE(reply->message.size(), 300U);
  EXPECT_EQ(reply->destination_ip, kGuestIp);
  EXPECT_EQ(reply->destination_mac, kGuestMac);
  ByteReader in(reply->message);
  EXPECT_EQ(in.u8(), 2);
  in.skip(3);
  EXPECT_EQ(in.be32(), 0xABCD1234U);
  in.skip(8);
  EXPECT_EQ(in.be32(), kGuestIp.value);
  auto options = options_of(reply->message);
  EXPECT_EQ(options[53], Bytes{kOffer});
  EXPECT_EQ(options[54], ip_option(kGatewayIp));
  EXPECT_EQ(options[1], ip_option({0xFFFFFFF8}));
  EXPECT_EQ(options[3], ip_option(kGatewayIp));
  EXPECT_EQ(options[6], ip_option(kGatewayIp));
  EXPECT_EQ(options[26], (Bytes{9000 >> 8, 9000 & 0xFF}));
  EXPECT_EQ(options[51], ip_option({3600}));
}

struct RequestCase {
  const char* name;
  Message message;
  int answer;  // type of the answer, 0 for none
};

TEST(Dhcp, AnswersRequestsByTheStateOfTheClient) {
  const Ipv4 other{kGuestIp.value + 1};
  const RequestCase cases[] = {
      {"selecting us",
       {kRequest, kGuestMac, 0, 0, {{50, ip_option(kGuestIp)}, {54, ip_option(kGatewayIp)}}},
       kAck},
      {"selecting another server",
       {kRequest, kGuestMac, 0, 0, {{50, ip_option(kGuestIp)}, {54, ip_option(other)}}},
       0},
      {"init-reboot with our address",
       {kRequest, kGuestMac, 0, 0, {{50, ip_option(kGuestIp)}}},
       kAck},
      {"init-reboot with another", {kRequest, kGuestMac, 0, 0, {{50, ip_option(other)}}}, kNak},
      {"renewing", {kRequest, kGuestMac, 0, kGuestIp.value, {}}, kAck},
      {"inform", {8, kGuestMac, 0, kGuestIp.value, {}}, kAck},
      {"decline", {4, kGuestMac, 0, 0, {}}, 0},
      {"release", {7, kGuestMac, 0, kGuestIp.value, {}}, 0},
      {"another client", {kDiscover, {{2, 2, 2, 2, 2, 2}}, 0, 0, {}}, 0},
      {"an offer", {kOffer, kGuestMac, 0, 0, {}}, 0},
      {"a requested address of three bytes", {kDiscover, kGuestMac, 0, 0, {{50, {1, 2, 3}}}}, 0},
  };
  for (const auto& c : cases) {
    const auto reply = answer_dhcp(kLease, c.message.bytes());
    ASSERT_EQ(reply.has_value(), c.answer != 0) << c.name;
    if (reply) {
      EXPECT_EQ(options_of(reply->message)[53], Bytes{static_cast<uint8_t>(c.answer)}) << c.name;
    }
  }
}

TEST(Dhcp, BroadcastsWhenAskedToAndWhenItRefuses) {
  Message message;
  message.flags = 0x8000;
  EXPECT_EQ(answer_dhcp(kLease, message.bytes())->destination_ip, Ipv4{0xFFFFFFFF});
  const Message refused{kRequest, kGuestMac, 0, 0, {{50, ip_option({1})}}};
  EXPECT_EQ(answer_dhcp(kLease, refused.bytes())->destination_mac, MacAddress::broadcast());
}

TEST(Dhcp, InformGetsNoLease) {
  const Message inform{8, kGuestMac, 0, kGuestIp.value, {}};
  const auto options = options_of(answer_dhcp(kLease, inform.bytes())->message);
  EXPECT_FALSE(options.contains(51));
  EXPECT_TRUE(options.contains(26));
}

TEST(Dhcp, EveryTruncationIsIgnored) {
  Bytes message = Message{}.bytes();
  message.pop_back();  // the end mark alone may be missing
  EXPECT_TRUE(answer_dhcp(kLease, message));
  while (!message.empty()) {
    message.pop_back();
    EXPECT_FALSE(answer_dhcp(kLease, message)) << message.size();
  }
}

}  // namespace
}  // namespace sandbox::net
