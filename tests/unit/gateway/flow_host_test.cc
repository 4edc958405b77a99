#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/socket.h"
#include "gateway/host_addresses.h"
#include "gateway/host_socket.h"

namespace sandbox::gateway {
namespace {

IpAddress ip(std::string_view text) {
  return *IpAddress::parse(text);
}

TEST(ConnectBudget, LimitsEachAddressAndTheTotal) {
  ConnectBudget budget;
  for (size_t i = 0; i < ConnectBudget::kPerAddress; ++i) ASSERT_TRUE(budget.take(ip("1.1.1.1")));
  EXPECT_FALSE(budget.take(ip("1.1.1.1")));
  EXPECT_TRUE(budget.take(ip("1.1.1.2")));
  budget.give_back(ip("1.1.1.1"));
  EXPECT_TRUE(budget.take(ip("1.1.1.1")));
  budget.give_back(ip("1.1.1.2"));
  for (uint32_t i = 0; budget.in_use() < ConnectBudget::kTotal; ++i)
    ASSERT_TRUE(budget.take(Ipv4{0x09000000 + i}));
  EXPECT_FALSE(budget.take(ip("8.8.8.8")));
}

// One rtnetlink message with one attribute.
Bytes address_message(uint16_t type, uint16_t flags, uint16_t attribute, const Bytes& value) {
  rtattr head{};
  head.rta_type = attribute;
  head.rta_len = static_cast<uint16_t>(RTA_LENGTH(value.size()));
  nlmsghdr message{};
  message.nlmsg_type = type;
  message.nlmsg_flags = flags;
  message.nlmsg_len = static_cast<uint32_t>(NLMSG_LENGTH(sizeof(ifaddrmsg)) + head.rta_len);
  Bytes out(NLMSG_ALIGN(message.nlmsg_len));
  std::memcpy(out.data(), &message, sizeof message);
  uint8_t* at = out.data() + NLMSG_LENGTH(sizeof(ifaddrmsg));
  std::memcpy(at, &head, sizeof head);
  std::memcpy(at + RTA_LENGTH(0), value.data(), value.size());
  return out;
}

TEST(HostAddresses, ReadsBothFamiliesFromADump) {
  Bytes all = address_message(RTM_NEWADDR, NLM_F_MULTI, IFA_LOCAL, {10, 1, 2, 3});
  Bytes v6(16, 0);
  v6[0] = 0xFD;
  v6[15] = 7;
  const Bytes second = address_message(RTM_NEWADDR, NLM_F_MULTI, IFA_ADDRESS, v6);
  all.insert(all.end(), second.begin(), second.end());
  std::vector<IpAddress> out;
  const AddressMessages seen = parse_address_messages(all, out);
  EXPECT_EQ(seen.end, AddressMessages::End::kNone);
  EXPECT_FALSE(seen.changed);
  EXPECT_EQ(out, (std::vector<IpAddress>{ip("10.1.2.3"), ip("fd00::7")}));
}

TEST(HostAddresses, AnAnnouncedChangeIsNoPartOfADump) {
  std::vector<IpAddress> out;
  const AddressMessages seen =
      parse_address_messages(address_message(RTM_NEWADDR, 0, IFA_LOCAL, {1, 2, 3, 4}), out);
  EXPECT_EQ(seen.end, AddressMessages::End::kNone);
  EXPECT_TRUE(seen.changed);
  EXPECT_TRUE(out.empty());
}

TEST(HostAddresses, AnErrorIsNotTheEndOfADumpThatWasWhole) {
  Bytes all = address_message(RTM_NEWADDR, NLM_F_MULTI, IFA_LOCAL, {10, 1, 2, 3});
  for (const auto& [type, end] : {std::pair(NLMSG_DONE, AddressMessages::End::kDone),
                                  std::pair(NLMSG_ERROR, AddressMessages::End::kFailed)}) {
    Bytes bytes = all;
    const Bytes last = address_message(static_cast<uint16_t>(type), NLM_F_MULTI, 0, {0, 0, 0, 0});
    bytes.insert(bytes.end(), last.begin(), last.end());
    std::vector<IpAddress> out;
    EXPECT_EQ(parse_address_messages(bytes, out).end, end);
  }
}

// A dump that a change overtook may lack what changed.
TEST(HostAddresses, AChangeDuringTheFirstDumpIsFollowedByAnother) {
  auto [ours, kernel] = *socket_pair(SocketKind::kSeqPacket);
  const Bytes done = address_message(NLMSG_DONE, NLM_F_MULTI, 0, {0, 0, 0, 0});
  for (const Bytes& message :
       {address_message(RTM_NEWADDR, NLM_F_MULTI, IFA_LOCAL, {10, 1, 2, 3}),
        address_message(RTM_NEWADDR, 0, IFA_LOCAL, {10, 1, 2, 4}), done,
        address_message(RTM_NEWADDR, NLM_F_MULTI, IFA_LOCAL, {10, 1, 2, 4}), done})
    ASSERT_GT(::send(kernel.get(), message.data(), message.size(), 0), 0);
  const auto addresses = HostAddresses::read_from(std::move(ours));
  ASSERT_TRUE(addresses);
  EXPECT_EQ((*addresses)->all(), std::vector<IpAddress>{ip("10.1.2.4")});
}

TEST(HostAddresses, EveryTruncationIsSurvived) {
  const Bytes whole = address_message(RTM_NEWADDR, NLM_F_MULTI, IFA_LOCAL, {10, 1, 2, 3});
  for (size_t size = 0; size < whole.size(); ++size) {
    std::vector<IpAddress> out;
    EXPECT_EQ(parse_address_messages(ByteView(whole).first(size), out).end,
              AddressMessages::End::kNone);
    EXPECT_TRUE(out.empty());
  }
}

TEST(HostAddresses, TheKernelsOwnAnswerHasLoopback) {
  const auto addresses = HostAddresses::create();
  ASSERT_TRUE(addresses) << addresses.error().message;
  EXPECT_NE(std::ranges::find((*addresses)->all(), ip("127.0.0.1")), (*addresses)->all().end());
}

}  // namespace
}  // namespace sandbox::gateway
