#include "gateway/datagram_flows.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/socket.h"
#include "gateway/host_addresses.h"
#include "unit/net/support.h"

namespace sandbox::gateway {
namespace {

struct Nothing final : net::Link::Upper {
  void on_tcp(const net::Ipv4Packet&) override {}
  void on_udp(const net::Ipv4Packet&, const net::UdpDatagram&) override {}
  void on_echo_request(const net::Ipv4Packet&, const net::IcmpEcho&) override {}
  void on_first_drop(net::Drop, std::string_view) override {}
};

// A server on an address of this machine to which a.example.org led, longer ago than the ledger
// keeps it. No name may lead to loopback, so a machine that has nothing else cannot be used.
class ExpiredName : public testing::Test {
 protected:
  void SetUp() override {
    const auto own = HostAddresses::create();
    ASSERT_TRUE(own);
    for (const IpAddress& each : (*own)->all())
      if (each.is_v4() && !is_never_by_name(each)) address_ = each.v4();
    if (address_.value == 0) GTEST_SKIP() << "this machine has no address but loopback";
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(address_.value);
    socklen_t size = sizeof at;
    server_ = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ASSERT_EQ(::bind(server_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    ASSERT_EQ(::getsockname(server_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);

    const std::vector<std::string> allow = {"udp/a.example.org@" + address_.text()};
    gates_.replace_policy(*policy::Policy::create(allow, {}));
    vouch(loop_->now() - std::chrono::hours(1));
  }

  void vouch(Instant when) {
    const std::vector<dns::AddressRecord> answers = {{address_, 60}};
    ASSERT_EQ(gates_.resolved(*policy::HostName::parse("a.example.org"), {}, answers, when)
                  .vouched.size(),
              1U);
  }

  void send(const std::string& payload) {
    Bytes packet(net::kIpv4Header + net::kUdpHeader);
    packet.insert(packet.end(), payload.begin(), payload.end());
    flows_.send({address_, port_, 4000, 0, ByteView(packet).last(payload.size()), packet});
  }

  // The upstream's answer to the question that was asked again.
  void renewed() {
    vouch(loop_->now());
    auto asked = std::exchange(asked_, {});
    for (const auto& callback : asked) callback(fail(Code::kUnavailable, "entered by the test"));
  }

  // What arrived, and from how many sockets of the gateway.
  std::pair<std::string, size_t> arrived() {
    std::string all;
    std::vector<uint16_t> senders;
    char buffer[64];
    sockaddr_in from{};
    socklen_t size = sizeof from;
    ssize_t got = 0;
    while ((got = ::recvfrom(server_.get(), buffer, sizeof buffer, 0,
                             reinterpret_cast<sockaddr*>(&from), &size)) > 0) {
      all.append(buffer, static_cast<size_t>(got));
      if (std::ranges::find(senders, from.sin_port) == senders.end())
        senders.push_back(from.sin_port);
    }
    return {all, senders.size()};
  }

  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::create());
  std::pair<Fd, Fd> records_ = *socket_pair(SocketKind::kSeqPacket);
  std::unique_ptr<audit::RecordSink> sink_ =
      std::move(*audit::RecordSink::create(*loop_, std::move(records_.first)));
  Reporter reporter_{*sink_};
  Gates gates_{policy::Policy(), {{}, *Ipv4::parse("192.0.0.1")}};
  Nothing upper_;
  net::test::MemoryWire wire_;
  net::Link link_{net::test::link_config(), wire_, upper_};
  std::vector<Resolver::Callback> asked_;
  NameService names_{gates_,
                     [this](const dns::Question&, const dns::Flags&, Resolver::Callback callback) {
                       asked_.push_back(std::move(callback));
                     },
                     [this] { return loop_->now(); }, [](const Decision&, std::optional<Ipv4>) {}};
  DatagramFlows flows_{{*loop_, gates_, names_, reporter_, link_}, policy::Protocol::kUdp};
  Fd server_;
  Ipv4 address_;
  uint16_t port_ = 0;
};

TEST_F(ExpiredName, holds_a_datagram_until_the_name_was_looked_up_again) {
  send("a");
  EXPECT_EQ(asked_.size(), 1U);
  EXPECT_EQ(arrived().first, "");
  renewed();
  EXPECT_EQ(arrived().first, "a");
  EXPECT_EQ(flows_.size(), 1U);
}

TEST_F(ExpiredName, gives_the_datagrams_that_waited_together_one_flow) {
  for (const char* payload : {"a", "b", "c"}) send(payload);
  renewed();
  EXPECT_EQ(arrived(), std::pair(std::string("abc"), size_t{1}));
  EXPECT_EQ(flows_.size(), 1U);
}

TEST_F(ExpiredName, refuses_the_datagram_when_the_name_leads_elsewhere_now) {
  send("a");
  ASSERT_EQ(asked_.size(), 1U);
  asked_.front()(fail(Code::kUnavailable, "no resolver answered"));
  EXPECT_EQ(arrived().first, "");
  EXPECT_EQ(flows_.size(), 0U);
  EXPECT_EQ(wire_.sent.size(), 1U) << "an ICMP error";
}

}  // namespace
}  // namespace sandbox::gateway
