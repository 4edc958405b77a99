#include "gateway/upstream_proxy.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/socket.h"
#include "gateway/gates.h"
#include "gateway/proxy_tunnel.h"
#include "gateway/stand_ins.h"

namespace sandbox::gateway {
namespace {

using policy::HostName;
using policy::Protocol;
using policy::Reason;

constexpr Instant kNow{std::chrono::hours(1)};

HostName host(const std::string& text) {
  return *HostName::parse(text);
}
IpAddress ip(const std::string& text) {
  return *IpAddress::parse(text);
}

UpstreamProxy proxy(std::string_view no_proxy = "") {
  return {"proxy.example.org", 3128, {ip("45.80.0.3")}, "", policy::BypassList::parse(no_proxy)};
}

Gates gates(std::vector<std::string> allow, std::vector<std::string> deny = {},
            std::string_view no_proxy = "") {
  return {*policy::Policy::create(allow, deny), {{}, *Ipv4::parse("192.0.0.1"), proxy(no_proxy)}};
}

NameAction action(const Gates& all, const std::string& name, dns::Type type = dns::Type::kA) {
  return all.query({dns::Name::of(host(name)), type}).action;
}

DialDecision dial(Gates& all, const IpAddress& address, uint16_t port,
                  Protocol protocol = Protocol::kTcp) {
  return all.dial(protocol, address, port, kNow);
}

std::string asked_of_proxy(const DialDecision& decision) {
  return decision.through_proxy ? decision.through_proxy->text() : "";
}

// ---- stand-ins ----

TEST(StandIns, ANameKeepsItsAddressAndSharesItWithNobody) {
  Ledger ledger;
  StandIns stand_ins;
  const auto a = stand_ins.vouch(ledger, host("a.test"), kNow);
  const auto b = stand_ins.vouch(ledger, host("b.test"), kNow);
  EXPECT_EQ(a->text(), "198.19.0.1");
  EXPECT_EQ(b->text(), "198.19.0.2");
  const Instant much_later = kNow + std::chrono::hours(10);
  EXPECT_EQ(stand_ins.vouch(ledger, host("a.test"), much_later), a);
  EXPECT_EQ(ledger.find(*a, much_later).names, std::vector<HostName>{host("a.test")});
}

TEST(StandIns, EndlessNamesCostNoMoreThanTheLedgerHas) {
  Ledger ledger;
  StandIns stand_ins;
  const auto first = stand_ins.vouch(ledger, host("held.test"), kNow);
  const auto held = ledger.find(*first, kNow).hold;
  for (int i = 0; i < 70'000; ++i) {
    const auto name = host(fmt::format("n{}.test", i));
    const auto address = stand_ins.vouch(ledger, name, kNow);
    ASSERT_TRUE(address && StandIns::in_pool(*address)) << i;
    ASSERT_EQ(ledger.find(*address, kNow).names, std::vector<HostName>{name}) << i;
  }
  EXPECT_LE(ledger.addresses(), Ledger::kMaxAddresses);
  EXPECT_EQ(ledger.find(*first, kNow).names, std::vector<HostName>{host("held.test")});
}

// ---- the gates ----

TEST(UpstreamProxyGates, OnlyTheProxyLooksNamesUp) {
  const Gates all = gates({"*.example.org"}, {"denied.example.org"}, "internal.example.org");
  EXPECT_EQ(action(all, "a.example.org"), NameAction::kStandIn);
  for (const auto type : {dns::Type::kAaaa, dns::Type::kTxt, dns::Type::kHttps, dns::Type::kMx})
    EXPECT_EQ(action(all, "a.example.org", type), NameAction::kNoData);
  EXPECT_EQ(action(all, "denied.example.org"), NameAction::kRefuse);
  EXPECT_EQ(action(all, "example.com"), NameAction::kRefuse);
  EXPECT_EQ(action(all, "a.internal.example.org"), NameAction::kForward);
  EXPECT_EQ(all.query({dns::Name::of(host("a.example.org")), dns::Type::kA}).decision.via,
            "proxy.example.org:3128");
}

TEST(UpstreamProxyGates, ADialToAStandInAsksTheProxyForItsName) {
  Gates all = gates({"a.example.org:443", "b.example.org:80", "0.0.0.0/0:22"});
  const Ipv4 a = *all.stand_in(host("a.example.org"), kNow);
  const DialDecision good = dial(all, a, 443);
  EXPECT_TRUE(good.decision.allow);
  EXPECT_EQ(asked_of_proxy(good), "a.example.org:443");
  EXPECT_EQ(good.decision.via, "proxy.example.org:3128");
  EXPECT_EQ(dial(all, a, 80).decision.reason, Reason::kNoAllowRule);
  EXPECT_EQ(dial(all, a, 22).decision.reason, Reason::kNoAllowRule)
      << "a rule for addresses says nothing about a stand-in";
  EXPECT_EQ(dial(all, ip("198.19.9.9"), 22).decision.reason, Reason::kUnresolvedAddress);
}

TEST(UpstreamProxyGates, ADenyRuleHoldsForStandInsToo) {
  Gates all = gates({"*.example.org"}, {"bad.example.org:443", "198.18.0.0/15:25"});
  const Ipv4 bad = *all.stand_in(host("bad.example.org"), kNow);
  EXPECT_EQ(dial(all, bad, 443).decision.reason, Reason::kDenyRule);
  EXPECT_EQ(dial(all, bad, 25).decision.reason, Reason::kDenyRule);
  EXPECT_TRUE(dial(all, bad, 80).decision.allow);
}

TEST(UpstreamProxyGates, AnAddressGoesThroughTheProxyUnlessNoProxyNamesIt) {
  Gates all = gates({"45.80.0.10:80", "10.0.0.0/8:80", "near.example.org:80"}, {},
                    "10.0.0.0/8,near.example.org");
  EXPECT_EQ(asked_of_proxy(dial(all, ip("45.80.0.10"), 80)), "45.80.0.10:80");
  const DialDecision direct = dial(all, ip("10.1.2.3"), 80);
  EXPECT_TRUE(direct.decision.allow);
  EXPECT_FALSE(direct.through_proxy);
  EXPECT_EQ(direct.decision.via, "");
  const std::vector<dns::AddressRecord> answers = {{*Ipv4::parse("45.80.0.11"), 60}};
  ASSERT_TRUE(all.resolved(host("near.example.org"), {}, answers, kNow).decision.allow);
  const DialDecision named = dial(all, ip("45.80.0.11"), 80);
  EXPECT_TRUE(named.decision.allow);
  EXPECT_FALSE(named.through_proxy);
}

TEST(UpstreamProxyGates, AStandInGoesThroughTheProxyWhateverNetworksNoProxyNames) {
  Gates all = gates({"a.example.org"}, {}, "198.18.0.0/15");
  const Ipv4 a = *all.stand_in(host("a.example.org"), kNow);
  EXPECT_EQ(asked_of_proxy(dial(all, a, 443)), "a.example.org:443");
  EXPECT_EQ(dial(all, a, 0, Protocol::kIcmp).decision.reason, Reason::kUpstreamProxy);
}

TEST(UpstreamProxyGates, HostInternalIsTheHostsOwn) {
  Gates all = gates({"host.internal:8080"});
  EXPECT_EQ(action(all, "host.internal"), NameAction::kHostInternal);
  const DialDecision local = dial(all, ip("192.0.0.1"), 8080);
  EXPECT_TRUE(local.decision.allow);
  EXPECT_FALSE(local.through_proxy);
}

TEST(UpstreamProxyGates, WhatIsNoTcpIsRefusedWithAReason) {
  Gates all = gates({"udp/45.80.0.10:53", "a.example.org", "udp/10.1.2.3:53"}, {}, "10.0.0.0/8");
  const DialDecision udp = dial(all, ip("45.80.0.10"), 53, Protocol::kUdp);
  EXPECT_EQ(udp.decision.reason, Reason::kUpstreamProxy);
  EXPECT_NE(udp.decision.text.find("udp cannot go through the upstream proxy"), std::string::npos)
      << udp.decision.text;
  const Ipv4 a = *all.stand_in(host("a.example.org"), kNow);
  EXPECT_EQ(dial(all, a, 0, Protocol::kIcmp).decision.reason, Reason::kUpstreamProxy);
  EXPECT_EQ(dial(all, a, 443, Protocol::kUdp).decision.reason, Reason::kQuic);
  EXPECT_TRUE(dial(all, ip("10.1.2.3"), 53, Protocol::kUdp).decision.allow);
}

TEST(UpstreamProxyGates, TheProxyItselfIsOutOfReach) {
  Gates all = gates({"*.example.org", "45.80.0.0/24", "near.test"}, {}, "near.test");
  const Ipv4 itself = *all.stand_in(host("proxy.example.org"), kNow);
  EXPECT_EQ(dial(all, itself, 3128).decision.reason, Reason::kUpstreamProxy);
  EXPECT_FALSE(dial(all, ip("45.80.0.3"), 3128).decision.allow);
  EXPECT_TRUE(dial(all, ip("45.80.0.4"), 3128).decision.allow);
  const std::vector<dns::AddressRecord> answers = {{*Ipv4::parse("45.80.0.3"), 60}};
  const Resolved resolved = all.resolved(host("near.test"), {}, answers, kNow);
  ASSERT_EQ(resolved.refused.size(), 1U);
  EXPECT_EQ(resolved.refused[0].decision.reason, Reason::kRebinding);
}

TEST(UpstreamProxyGates, AnAnswerMayNotLeadIntoThePool) {
  Gates all = gates({"near.test@198.18.0.0/15"}, {}, "near.test");
  for (const char* address : {"198.19.0.1", "198.18.0.1"}) {
    const std::vector<dns::AddressRecord> answers = {{*Ipv4::parse(address), 60}};
    const Resolved resolved = all.resolved(host("near.test"), {}, answers, kNow);
    EXPECT_EQ(resolved.vouched.size(), std::string(address) == "198.18.0.1" ? 1U : 0U) << address;
  }
}

TEST(UpstreamProxyGates, TheStreamMustShowTheNameOfTheStandIn) {
  Gates all = gates({"a.example.org", "b.example.org", "0.0.0.0/0"});
  const Ipv4 a = *all.stand_in(host("a.example.org"), kNow);
  (void)all.stand_in(host("b.example.org"), kNow);
  DialDecision decision = dial(all, a, 443);
  ASSERT_TRUE(decision.decision.allow);
  tls::Hello hello;
  hello.server_name = host("a.example.org");
  EXPECT_TRUE(all.hello(decision.flow, hello, kNow).allow);
  EXPECT_TRUE(all.rejudge(decision.flow, kNow).allow);
  hello.server_name = host("b.example.org");
  EXPECT_EQ(all.hello(decision.flow, hello, kNow).reason, Reason::kSniDenied);
  hello.server_name.reset();
  EXPECT_EQ(all.hello(decision.flow, hello, kNow).reason, Reason::kSniDenied);
}

TEST(UpstreamProxyGates, WithoutAProxyThePoolIsLikeAnyPrivateSpace) {
  Gates all(*policy::Policy::create(std::vector<std::string>{"198.19.0.1:80", "a.example.org"}, {}),
            {{}, *Ipv4::parse("192.0.0.1"), std::nullopt});
  EXPECT_EQ(action(all, "a.example.org"), NameAction::kForward);
  const DialDecision direct = dial(all, ip("198.19.0.1"), 80);
  EXPECT_TRUE(direct.decision.allow);
  EXPECT_FALSE(direct.through_proxy);
}

// ---- the tunnel ----

class ProxyTunnelTest : public testing::Test {
 protected:
  using State = ProxyTunnel::State;

  void SetUp() override {
    auto pair = socket_pair(SocketKind::kStream);
    ours_ = std::move(pair->first);
    theirs_ = std::move(pair->second);
    ASSERT_TRUE(set_nonblocking(ours_.get(), true));
    ASSERT_TRUE(set_nonblocking(theirs_.get(), true));
  }
  std::string received(int fd) {
    char buffer[4096];
    const ssize_t size = ::recv(fd, buffer, sizeof buffer, 0);
    return size > 0 ? std::string(buffer, static_cast<size_t>(size)) : "";
  }
  void say(std::string_view text) {
    ASSERT_EQ(::send(theirs_.get(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
  }
  State advance() { return tunnel_.advance(ours_.get()); }

  Fd ours_, theirs_;
  ProxyTunnel tunnel_{proxy(), *http::Authority::parse("a.example.org:443")};
};

TEST_F(ProxyTunnelTest, OpensAndLeavesWhatTheServerSays) {
  EXPECT_EQ(advance(), State::kReading);
  EXPECT_EQ(received(theirs_.get()),
            "CONNECT a.example.org:443 HTTP/1.1\r\nHost: a.example.org:443\r\n\r\n");
  EXPECT_EQ(advance(), State::kReading);
  say("HTTP/1.1 200 Conn");
  EXPECT_EQ(advance(), State::kReading);
  say("ection established\r\n\r\n220 hello");
  EXPECT_EQ(advance(), State::kOpen);
  EXPECT_EQ(received(ours_.get()), "220 hello");
}

TEST_F(ProxyTunnelTest, SaysWhyItFailed) {
  EXPECT_EQ(advance(), State::kReading);
  say("HTTP/1.1 403 Forbidden\r\n\r\n");
  EXPECT_EQ(advance(), State::kFailed);
  EXPECT_EQ(tunnel_.why(), "the upstream proxy proxy.example.org:3128 answered 403 Forbidden");
  EXPECT_FALSE(tunnel_.wants_credentials());
}

TEST_F(ProxyTunnelTest, AsksForCredentialsInWords) {
  EXPECT_EQ(advance(), State::kReading);
  say("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
  EXPECT_EQ(advance(), State::kFailed);
  EXPECT_TRUE(tunnel_.wants_credentials());
  EXPECT_NE(tunnel_.why().find("--upstream-proxy http://USER:PASSWORD@HOST:PORT"),
            std::string::npos);
  UpstreamProxy known = proxy();
  known.authorization = http::basic_authorization("user", "secret");
  tunnel_ = ProxyTunnel(known, *http::Authority::parse("a.example.org:443"));
  EXPECT_EQ(advance(), State::kReading);
  EXPECT_NE(received(theirs_.get()).find("\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"),
            std::string::npos);
  say("HTTP/1.1 407 No\r\n\r\n");
  EXPECT_EQ(advance(), State::kFailed);
  EXPECT_NE(tunnel_.why().find("refuses the user name and password"), std::string::npos);
  EXPECT_EQ(tunnel_.why().find("secret"), std::string::npos);
}

TEST_F(ProxyTunnelTest, AnEndOrNonsenseIsAFailure) {
  EXPECT_EQ(advance(), State::kReading);
  say("SSH-2.0-OpenSSH\r\n");
  EXPECT_EQ(advance(), State::kFailed);
  EXPECT_NE(tunnel_.why().find("not HTTP"), std::string::npos);
  tunnel_ = ProxyTunnel(proxy(), *http::Authority::parse("a.example.org:443"));
  EXPECT_EQ(advance(), State::kReading);
  say("HTTP/1.1 200 O");
  (void)received(theirs_.get());  // closed unread it would be a reset
  theirs_.reset();
  EXPECT_EQ(advance(), State::kFailed);
  EXPECT_NE(tunnel_.why().find("without an answer"), std::string::npos) << tunnel_.why();
}

}  // namespace
}  // namespace sandbox::gateway
