#include "gateway/stream_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/net/tls/hello_builder.h"

namespace sandbox::gateway {
namespace {

using State = StreamGate::State;
using policy::Reason;

constexpr Instant kNow{std::chrono::hours(1)};
const IpAddress kAddress = *IpAddress::parse("93.184.215.14");

// a.example.org was resolved to kAddress, and the guest has dialled it.
class StreamGateTest : public testing::Test {
 protected:
  void open(uint16_t port, std::vector<std::string> allow = {"a.example.org"}) {
    gates_.emplace(*policy::Policy::create(allow, {}),
                   Gates::Config{{}, *Ipv4::parse("192.0.0.1")});
    for (const char* name : {"a.example.org", "proxy.example.com"})
      (void)gates_->resolved(*policy::HostName::parse(name), {},
                             std::vector<dns::AddressRecord>{{kAddress.v4(), 60}}, kNow);
    auto dialled = gates_->dial(policy::Protocol::kTcp, kAddress, port, kNow);
    ASSERT_TRUE(dialled.decision.allow) << dialled.decision.text;
    flow_ = std::move(dialled.flow);
    gate_.emplace(*gates_, flow_);
  }

  // Gives the bytes `step` at a time; what passed is in passed_.
  State client(std::string_view bytes, size_t step = 1U << 20, Instant now = kNow) {
    State state = gate_->state();
    for (size_t at = 0; at < bytes.size(); at += step) {
      held_ += bytes.substr(at, step);
      state = take(gate_->from_client(as_bytes(bytes.substr(at, step)), now));
    }
    return state;
  }
  State client(const Bytes& bytes, size_t step = 1U << 20) { return client(as_text(bytes), step); }
  State server(std::string_view bytes) { return take(gate_->from_server(as_bytes(bytes), kNow)); }

  State take(StreamGate::Step step) {
    EXPECT_LE(step.pass, held_.size());
    passed_ += held_.substr(0, step.pass);
    held_.erase(0, step.pass);
    farewell_ += as_text(step.farewell);
    for (Decision& each : step.decisions) decisions_.push_back(std::move(each));
    return step.state;
  }

  std::optional<Gates> gates_;
  Flow flow_;
  std::optional<StreamGate> gate_;
  std::string held_, passed_, farewell_;
  std::vector<Decision> decisions_;
};

std::string get(const std::string& host, const std::string& fields = "") {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n";
}

TEST_F(StreamGateTest, passes_nothing_of_a_hello_before_its_name_is_known) {
  open(443);
  const Bytes hello = tls::testing::hello("a.example.org");
  const std::string text(as_text(hello));
  EXPECT_EQ(client(text.substr(0, text.size() - 1), 1), State::kHold);
  EXPECT_EQ(passed_, "");
  EXPECT_EQ(client(text.substr(text.size() - 1)), State::kWatch);
  EXPECT_EQ(passed_, text);
  EXPECT_EQ(flow_.shown->text(), "a.example.org:443");
}

TEST_F(StreamGateTest, opens_once_the_handshake_is_past) {
  open(443);
  (void)client(tls::testing::hello("a.example.org"));
  EXPECT_EQ(client(tls::testing::record(23, Bytes(100))), State::kOpen);
  EXPECT_EQ(client("anything at all"), State::kOpen);
  EXPECT_EQ(held_, "");
}

TEST_F(StreamGateTest, answers_another_name_with_an_alert) {
  for (const size_t step : {size_t{1}, size_t{10000}}) {
    open(443);
    passed_ = farewell_ = "";
    EXPECT_EQ(client(tls::testing::hello("evil.net"), step), State::kRefused);
    EXPECT_EQ(passed_, "");
    EXPECT_EQ(Bytes(farewell_.begin(), farewell_.end()), tls::alert(tls::kAlertAccessDenied));
    EXPECT_EQ(decisions_.back().reason, Reason::kSniDenied);
    EXPECT_EQ(decisions_.back().subject, "evil.net");
  }
}

TEST_F(StreamGateTest, never_passes_the_end_of_a_second_hello_with_another_name) {
  open(443);
  (void)client(tls::testing::hello("a.example.org"));
  passed_.clear();
  const Bytes second = tls::testing::hello("evil.net");
  EXPECT_EQ(client(second, 1), State::kRefused);
  EXPECT_EQ(passed_.size(), second.size() - 1);
  EXPECT_EQ(decisions_.back().reason, Reason::kSniUnreadable);
}

TEST_F(StreamGateTest, refuses_ech_and_unreadable_hellos) {
  using namespace tls::testing;  // NOLINT
  open(8443);
  EXPECT_EQ(client(record(22, hello_message(std::vector{server_name("a.example.org"), ech()}))),
            State::kRefused);
  EXPECT_EQ(decisions_.back().reason, Reason::kEch);
  open(8443);
  EXPECT_EQ(client(Bytes{0x80, 0x2E, 1, 0, 2}), State::kRefused);
  EXPECT_EQ(decisions_.back().reason, Reason::kSniUnreadable);
}

TEST_F(StreamGateTest, judges_every_request_of_a_connection) {
  for (const size_t step : {size_t{1}, size_t{7}, size_t{10000}}) {
    open(80);
    passed_ = held_ = farewell_ = "";
    decisions_.clear();
    const std::string good =
        get("a.example.org") +
        "POST / HTTP/1.1\r\nHost: a.example.org\r\nContent-Length: 4\r\n\r\nbody";
    EXPECT_EQ(client(good + get("evil.net"), step), State::kRefused);
    if (step < 10000) {
      EXPECT_EQ(passed_, good);
    } else {
      EXPECT_EQ(passed_, "") << "all came at once: a refused stream passes nothing more";
    }
    ASSERT_EQ(decisions_.size(), 3U);
    EXPECT_TRUE(decisions_[0].allow && decisions_[1].allow);
    EXPECT_EQ(decisions_[2].reason, Reason::kHostDenied);
    EXPECT_THAT(farewell_, testing::StartsWith("HTTP/1.1 403 "));
    EXPECT_THAT(farewell_, testing::HasSubstr("evil.net"));
  }
}

TEST_F(StreamGateTest, an_open_connection_keeps_its_name_while_it_is_idle) {
  open(80);
  EXPECT_EQ(client(get("a.example.org")), State::kWatch);
  for (const auto idle : {std::chrono::minutes(11), std::chrono::minutes(24 * 60)}) {
    EXPECT_EQ(client(get("a.example.org"), 1U << 20, kNow + idle), State::kWatch);
    EXPECT_TRUE(decisions_.back().allow);
  }
  // The control: without the connection the pair would have gone.
  flow_ = {};
  EXPECT_FALSE(gates_->dial(policy::Protocol::kTcp, kAddress, 80, kNow + std::chrono::hours(25))
                   .decision.allow);
}

TEST_F(StreamGateTest, a_denial_names_the_flag_that_would_allow_it) {
  open(80);
  (void)client(get("b.example.org"));
  EXPECT_THAT(farewell_, testing::HasSubstr("--allow b.example.org:80"));
}

TEST_F(StreamGateTest, answers_a_malformed_request_with_400) {
  open(80);
  EXPECT_EQ(client("GET / HTTP/1.1\r\nHost: a.example.org\r\nHost: evil.net\r\n\r\n"),
            State::kRefused);
  EXPECT_THAT(farewell_, testing::StartsWith("HTTP/1.1 400 "));
}

TEST_F(StreamGateTest, passes_bodies_as_they_come) {
  open(80);
  (void)client("PUT / HTTP/1.1\r\nHost: a.example.org\r\nContent-Length: 1000000\r\n\r\n");
  passed_.clear();
  EXPECT_EQ(client(std::string(1000, 'x')), State::kWatch);
  EXPECT_EQ(passed_.size(), 1000U);
}

TEST_F(StreamGateTest, opens_a_websocket_when_the_server_agrees) {
  open(80);
  const std::string upgrade = get("a.example.org", "Upgrade: websocket\r\nConnection: Upgrade\r\n");
  EXPECT_EQ(client(upgrade), State::kWatch);
  EXPECT_EQ(passed_, upgrade);
  ASSERT_TRUE(gate_->wants_server());
  EXPECT_EQ(client("early"), State::kHold);
  EXPECT_EQ(passed_, upgrade);
  EXPECT_EQ(server("HTTP/1.1 101 Switching"), State::kHold);
  EXPECT_EQ(server(" Protocols\r\n\r\n"), State::kOpen);
  EXPECT_EQ(passed_, upgrade + "early");
}

TEST_F(StreamGateTest, goes_on_judging_when_the_server_declines_a_websocket) {
  open(80);
  (void)client(get("a.example.org", "Upgrade: websocket\r\nConnection: Upgrade\r\n"));
  (void)server("HTTP/1.1 200 OK\r\n\r\n");
  EXPECT_FALSE(gate_->wants_server());
  EXPECT_EQ(client(get("evil.net")), State::kRefused);
}

TEST_F(StreamGateTest, lets_other_protocols_pass_except_on_443) {
  open(6667);
  EXPECT_EQ(client("NICK someone\r\n", 1), State::kOpen);
  EXPECT_EQ(passed_, "NICK someone\r\n");
  open(443);
  EXPECT_EQ(client("SSH-2.0-x\r\n"), State::kRefused);
  EXPECT_EQ(decisions_.back().reason, Reason::kSniUnreadable);
}

TEST_F(StreamGateTest, passes_single_bytes_that_start_no_record) {
  open(9000);
  EXPECT_EQ(client(std::string("\x16", 1)), State::kHold);
  open(9000);
  held_ = passed_ = "";
  EXPECT_EQ(client(std::string("\x00", 1)), State::kOpen);
  EXPECT_EQ(passed_.size(), 1U);
}

TEST_F(StreamGateTest, refuses_what_stays_undecided) {
  open(443);
  (void)client(std::string("\x16\x03\x01", 3));
  EXPECT_EQ(take(gate_->timed_out()), State::kRefused);
  EXPECT_EQ(decisions_.back().reason, Reason::kSniUnreadable);
  open(80);
  farewell_.clear();
  (void)client("GET / HTTP/1.1\r\nHost: a.exa");
  EXPECT_EQ(take(gate_->timed_out()), State::kRefused);
  EXPECT_THAT(farewell_, testing::StartsWith("HTTP/1.1 400 "));
}

TEST_F(StreamGateTest, a_late_timeout_changes_nothing) {
  open(80);
  (void)client(get("a.example.org"));
  EXPECT_EQ(take(gate_->timed_out()), State::kWatch);
}

class ProxyGate : public StreamGateTest {
 protected:
  void SetUp() override { open(3128, {"proxy/proxy.example.com:3128", "a.example.org:443"}); }
};

TEST_F(ProxyGate, reads_the_stream_inside_an_allowed_tunnel_anew) {
  const std::string connect =
      "CONNECT a.example.org:443 HTTP/1.1\r\nHost: a.example.org:443\r\n\r\n";
  EXPECT_EQ(client(connect), State::kWatch);
  EXPECT_EQ(passed_, connect);
  EXPECT_EQ(client(tls::testing::hello("a.example.org")), State::kWatch);
  EXPECT_EQ(held_, "");
}

TEST_F(ProxyGate, refuses_another_name_inside_an_allowed_tunnel) {
  (void)client("CONNECT a.example.org:443 HTTP/1.1\r\nHost: a.example.org:443\r\n\r\n");
  EXPECT_EQ(client(tls::testing::hello("evil.net")), State::kRefused);
  EXPECT_EQ(decisions_.back().reason, Reason::kSniDenied);
}

TEST_F(ProxyGate, refuses_a_request_for_another_target_where_a_tunnel_was_expected) {
  (void)client("CONNECT a.example.org:443 HTTP/1.1\r\nHost: a.example.org:443\r\n\r\n");
  EXPECT_EQ(client("GET http://evil.net/ HTTP/1.1\r\nHost: evil.net\r\n\r\n"), State::kRefused);
}

TEST_F(ProxyGate, refuses_socks_and_tls_to_the_proxy_itself) {
  EXPECT_EQ(client(std::string("\x05\x01\x00", 3)), State::kRefused);
  SetUp();
  EXPECT_EQ(client(tls::testing::hello("proxy.example.com")), State::kRefused);
}

}  // namespace
}  // namespace sandbox::gateway
