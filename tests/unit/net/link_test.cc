#include "net/link.h"

#include <gtest/gtest.h>

#include <map>

#include "unit/net/support.h"

namespace sandbox::net {
namespace {

using namespace test;  // NOLINT: names of the test's own support header

struct Recorder final : Link::Upper {
  void on_tcp(const Ipv4Packet&) override { ++tcp; }
  void on_udp(const Ipv4Packet&, const UdpDatagram& d) override {
    udp.emplace_back(d.payload.begin(), d.payload.end());
  }
  void on_echo_request(const Ipv4Packet&, const IcmpEcho&) override { ++echo; }
  void on_first_drop(Drop drop, std::string_view) override { ++first[drop]; }
  int tcp = 0;
  int echo = 0;
  std::vector<Bytes> udp;
  std::map<Drop, int> first;
};

class LinkTest : public testing::Test {
 protected:
  void receive(const Bytes& bytes) { link_.receive(bytes, now_); }
  void receive_ip(const Bytes& ip) { receive(guest_frame(ip)); }
  // True when exactly `kind` was counted, nothing went up and nothing was answered.
  testing::AssertionResult dropped_as(Drop kind) {
    for (size_t i = 0; i < static_cast<size_t>(Drop::kCount); ++i) {
      const auto drop = static_cast<Drop>(i);
      if ((link_.dropped(drop) != 0) != (drop == kind))
        return testing::AssertionFailure() << drop_name(drop) << " " << link_.dropped(drop);
    }
    if (upper_.tcp + upper_.echo != 0 || !upper_.udp.empty() || !wire_.sent.empty())
      return testing::AssertionFailure() << "it went on";
    return testing::AssertionSuccess();
  }
  Bytes valid_udp(Ipv4 source = kGuestIp) {
    return packet(source, kServerIp, kProtocolUdp,
                  test::udp(source, 4000, kServerIp, 123, Bytes{9}));
  }
  Bytes echo_request(Ipv4 to) {
    Bytes icmp(kIcmpHeader + 4, 0x5A);
    write_icmp_echo(icmp.data(), IcmpEcho::kRequest, 77, 3, 4);
    return packet(kGuestIp, to, kProtocolIcmp, icmp);
  }
  Ipv4Packet sent_packet(size_t index) {
    const auto frame = parse_ethernet(wire_.sent.at(index));
    Ipv4Packet out;
    EXPECT_EQ(parse_ipv4(frame->payload, out), Ipv4Error::kNone);
    return out;
  }

  MemoryWire wire_;
  Recorder upper_;
  Link link_{link_config(), wire_, upper_};
  Instant now_;
};

TEST_F(LinkTest, PassesValidPackets) {
  receive_ip(valid_udp());
  receive_ip(packet(kGuestIp, kServerIp, kProtocolTcp, Bytes(20)));
  receive_ip(echo_request(kServerIp));
  EXPECT_EQ(upper_.udp, std::vector<Bytes>{{9}});
  EXPECT_EQ(upper_.tcp, 1);
  EXPECT_EQ(upper_.echo, 1);
}

TEST_F(LinkTest, DropsAnotherSourceMac) {
  MacAddress other = kGuestMac;
  other.bytes[5] ^= 1;
  receive(frame(kGatewayMac, other, kTypeIpv4, valid_udp()));
  EXPECT_TRUE(dropped_as(Drop::kSourceMac));
}

TEST_F(LinkTest, DropsAnotherDestinationMac) {
  receive(frame(kGuestMac, kGuestMac, kTypeIpv4, valid_udp()));
  EXPECT_TRUE(dropped_as(Drop::kDestinationMac));
}

TEST_F(LinkTest, DropsVlanTags) {
  receive(frame(kGatewayMac, kGuestMac, kTypeVlan, valid_udp()));
  receive(frame(kGatewayMac, kGuestMac, kTypeServiceVlan, valid_udp()));
  EXPECT_TRUE(dropped_as(Drop::kVlan));
  EXPECT_EQ(link_.dropped(Drop::kVlan), 2U);
  EXPECT_EQ(upper_.first[Drop::kVlan], 1) << "only the first is reported";
}

TEST_F(LinkTest, DropsIpv6) {
  receive(frame(kGatewayMac, kGuestMac, kTypeIpv6, Bytes(40)));
  EXPECT_TRUE(dropped_as(Drop::kIpv6));
}

TEST_F(LinkTest, DropsASpoofedSourceAddress) {
  receive_ip(valid_udp({kGuestIp.value + 1}));
  EXPECT_TRUE(dropped_as(Drop::kIpSource));
}

TEST_F(LinkTest, DropsIpOptions) {
  Bytes ip = packet(kGuestIp, kServerIp, kProtocolTcp, Bytes(24));
  ip[0] = 0x46;
  receive_ip(ip);
  EXPECT_TRUE(dropped_as(Drop::kIpOptions));
}

TEST_F(LinkTest, DropsTcpFragments) {
  receive_ip(fragment(kServerIp, kProtocolTcp, Bytes(24), {1, 0, true}));
  receive_ip(fragment(kServerIp, kProtocolTcp, Bytes(24), {1, 24, false}));
  EXPECT_TRUE(dropped_as(Drop::kTcpFragment));
}

TEST_F(LinkTest, DropsMulticastAndBroadcast) {
  receive_ip(packet(kGuestIp, {0xE00000FB}, kProtocolUdp,
                    test::udp(kGuestIp, 5353, {0xE00000FB}, 5353, Bytes{1})));
  receive_ip(packet(kGuestIp, {0xFFFFFFFF}, kProtocolUdp,
                    test::udp(kGuestIp, 99, {0xFFFFFFFF}, 99, Bytes{1})));
  EXPECT_TRUE(dropped_as(Drop::kIpDestination));
}

TEST_F(LinkTest, DropsABadUdpChecksum) {
  Bytes ip = valid_udp();
  ip.back() ^= 1;
  receive_ip(ip);
  EXPECT_TRUE(dropped_as(Drop::kUdpMalformed));
}

TEST_F(LinkTest, DropsOtherIcmp) {
  Bytes icmp(kIcmpHeader + kIcmpQuote);
  icmp.resize(write_icmp_unreachable(icmp.data(), Unreachable::kPort, valid_udp()));
  receive_ip(packet(kGuestIp, kServerIp, kProtocolIcmp, icmp));
  EXPECT_TRUE(dropped_as(Drop::kIcmpUnsupported));
}

TEST_F(LinkTest, AnswersOtherProtocolsWithAnIcmpError) {
  receive_ip(packet(kGuestIp, kServerIp, 132, Bytes(20)));
  EXPECT_EQ(link_.dropped(Drop::kProtocol), 1U);
  ASSERT_EQ(wire_.sent.size(), 1U);
  const Ipv4Packet answer = sent_packet(0);
  EXPECT_EQ(answer.payload[0], 3);
  EXPECT_EQ(answer.payload[1], 2);
}

TEST_F(LinkTest, ReassemblesUdp) {
  const Bytes payload(3000, 0x42);
  const Bytes whole = test::udp(kGuestIp, 1, kServerIp, 2, payload);
  const ByteView view(whole);
  receive_ip(fragment(kServerIp, kProtocolUdp, view.subspan(1480), {5, 1480, false}));
  receive_ip(fragment(kServerIp, kProtocolUdp, view.first(1480), {5, 0, true}));
  ASSERT_EQ(upper_.udp.size(), 1U);
  EXPECT_EQ(upper_.udp[0], payload);
}

TEST_F(LinkTest, AnswersArpForTheGatewayOnly) {
  Bytes arp(kArpPacket);
  write_arp(arp.data(), {ArpPacket::kRequest, kGuestMac, kGuestIp, {}, kGatewayIp});
  receive(frame(MacAddress::broadcast(), kGuestMac, kTypeArp, arp));
  ASSERT_EQ(wire_.sent.size(), 1U);
  const auto answer = parse_arp(parse_ethernet(wire_.sent[0])->payload);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->operation, ArpPacket::kReply);
  EXPECT_EQ(answer->sender_mac, kGatewayMac);
  EXPECT_EQ(answer->sender_ip, kGatewayIp);
  EXPECT_EQ(answer->target_mac, kGuestMac);

  write_arp(arp.data(), {ArpPacket::kRequest, kGuestMac, kGuestIp, {}, {kGatewayIp.value + 2}});
  receive(frame(MacAddress::broadcast(), kGuestMac, kTypeArp, arp));
  EXPECT_EQ(wire_.sent.size(), 1U);
}

TEST_F(LinkTest, AnArpProbeOfItsOwnAddressIsNotAnswered) {
  Bytes arp(kArpPacket);
  write_arp(arp.data(), {ArpPacket::kRequest, kGuestMac, {0}, {}, kGuestIp});
  receive(frame(MacAddress::broadcast(), kGuestMac, kTypeArp, arp));
  EXPECT_TRUE(wire_.sent.empty());
  EXPECT_TRUE(upper_.first.empty());
}

TEST_F(LinkTest, DropsArpClaimsOnTheGatewaysAddress) {
  for (const uint16_t operation : {ArpPacket::kRequest, ArpPacket::kReply}) {
    Bytes arp(kArpPacket);
    write_arp(arp.data(), {operation, kGuestMac, kGatewayIp, {}, kGatewayIp});
    receive(frame(MacAddress::broadcast(), kGuestMac, kTypeArp, arp));
  }
  EXPECT_TRUE(dropped_as(Drop::kArpClaim));
  EXPECT_EQ(link_.dropped(Drop::kArpClaim), 2U);
}

TEST_F(LinkTest, AnswersEchoOfTheGatewayItself) {
  receive_ip(echo_request(kGatewayIp));
  ASSERT_EQ(wire_.sent.size(), 1U);
  const auto echo = parse_icmp_echo(sent_packet(0).payload);
  ASSERT_TRUE(echo);
  EXPECT_EQ(echo->type, IcmpEcho::kReply);
  EXPECT_EQ(echo->identifier, 77);
  EXPECT_EQ(echo->sequence, 3);
  EXPECT_EQ(echo->payload.size(), 4U);
  EXPECT_EQ(upper_.echo, 0);
}

TEST_F(LinkTest, SendsLargeDatagramsAsFragments) {
  const Bytes payload(5000, 0x31);
  ASSERT_TRUE(link_.send_udp(kServerIp, 53, 4000, payload));
  ASSERT_EQ(wire_.sent.size(), 4U);
  Reassembly reassembly;
  Reassembly::Result last;
  for (size_t i = 0; i < wire_.sent.size(); ++i) {
    EXPECT_LE(wire_.sent[i].size(), 1500 + kEthernetHeader);
    last = reassembly.add(sent_packet(i), now_);
  }
  ASSERT_EQ(last.outcome, Reassembly::Outcome::kComplete);
  UdpDatagram datagram;
  ASSERT_EQ(parse_udp(last.packet, datagram), UdpError::kNone);
  EXPECT_EQ(Bytes(datagram.payload.begin(), datagram.payload.end()), payload);
}

TEST_F(LinkTest, QuotesTheOffendingPacket) {
  const Bytes offending = packet(kGuestIp, kServerIp, kProtocolUdp,
                                 test::udp(kGuestIp, 4000, kServerIp, 443, Bytes(1000)));
  Ipv4Packet parsed;
  ASSERT_EQ(parse_ipv4(offending, parsed), Ipv4Error::kNone);
  ASSERT_TRUE(link_.send_unreachable(Unreachable::kPort, parsed.whole));
  const Ipv4Packet error = sent_packet(0);
  EXPECT_EQ(error.source, kGatewayIp);
  EXPECT_EQ(error.whole.size(), 576U);
  EXPECT_EQ(checksum_of(error.payload), 0);
  EXPECT_TRUE(
      std::equal(error.payload.begin() + kIcmpHeader, error.payload.end(), offending.begin()));
}

TEST_F(LinkTest, SaysWhenTheWireIsFull) {
  wire_.full = true;
  EXPECT_FALSE(link_.send_udp(kServerIp, 1, 2, Bytes{1}));
  EXPECT_TRUE(link_.begin_packet(100).empty());
  receive_ip(echo_request(kGatewayIp));
  EXPECT_TRUE(wire_.sent.empty());
}

TEST_F(LinkTest, EveryDropHasAName) {
  for (size_t i = 0; i < static_cast<size_t>(Drop::kCount); ++i)
    EXPECT_FALSE(drop_name(static_cast<Drop>(i)).empty());
}

}  // namespace
}  // namespace sandbox::net
