// The resolver against name servers of our own on loopback, in one loop and one thread.

#include "gateway/resolver.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace sandbox::gateway {
namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Answers over UDP and TCP on the same port as its `reply` says.
class Server {
 public:
  using Reply = std::function<Bytes(const Bytes& query, bool tcp)>;

  Server(EventLoop& loop, Reply reply) : loop_(loop), reply_(std::move(reply)) {
    udp_ = Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    tcp_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(udp_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(udp_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    EXPECT_EQ(::bind(tcp_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(tcp_.get(), 4), 0);
    EXPECT_TRUE(loop_.add(udp_.get(), EventLoop::kRead, [this](uint32_t) { on_udp(); }));
    EXPECT_TRUE(loop_.add(tcp_.get(), EventLoop::kRead, [this](uint32_t) { on_accept(); }));
  }
  ~Server() {
    loop_.remove(udp_.get());
    loop_.remove(tcp_.get());
    if (peer_) loop_.remove(peer_.get());
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int queries = 0;

 private:
  void on_udp() {
    Bytes buffer(4096);
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t got = ::recvfrom(udp_.get(), buffer.data(), buffer.size(), 0,
                                   reinterpret_cast<sockaddr*>(&from), &size);
    ASSERT_GT(got, 0);
    buffer.resize(static_cast<size_t>(got));
    ++queries;
    const Bytes out = reply_(buffer, false);
    if (!out.empty())
      ::sendto(udp_.get(), out.data(), out.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
  void on_accept() {
    peer_ = Fd(::accept4(tcp_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(loop_.add(peer_.get(), EventLoop::kRead, [this](uint32_t) { on_stream(); }));
  }
  void on_stream() {
    Bytes buffer(4096);
    const ssize_t got = ::read(peer_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      loop_.remove(peer_.get());
      peer_.reset();
      return;
    }
    framer_.feed(ByteView(buffer).first(static_cast<size_t>(got)));
    Bytes message;
    while (framer_.next(message) == dns::TcpFramer::Next::kMessage) {
      ++queries;
      const Bytes out = dns::frame_for_tcp(reply_(message, true));
      ASSERT_EQ(::write(peer_.get(), out.data(), out.size()), static_cast<ssize_t>(out.size()));
    }
  }

  EventLoop& loop_;
  Reply reply_;
  Fd udp_, tcp_, peer_;
  dns::TcpFramer framer_;
  uint16_t port_ = 0;
};

Bytes answer_with(const Bytes& query, const std::string& address) {
  const auto parsed = dns::parse_query(query);
  return dns::build_addresses(std::get<dns::Query>(parsed), {{*Ipv4::parse(address), 60}});
}

Bytes failure(const Bytes& query) {
  const auto parsed = dns::parse_query(query);
  return dns::build_servfail(std::get<dns::Query>(parsed), dns::Ede::kNetworkError, "");
}

class ResolverTest : public testing::Test {
 protected:
  std::unique_ptr<Resolver> resolver(const std::vector<std::string>& servers) {
    auto made = Resolver::create(*loop_, servers);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  dns::Question question(const std::string& name = "a.example.org") {
    return {dns::Name::of(*policy::HostName::parse(name)), dns::Type::kA};
  }
  void ask(Resolver& resolver, const dns::Question& asked) {
    resolver.query(asked, {}, [this, asked](const Result<Bytes>& raw) {
      if (!raw) return results_.push_back("error: " + raw.error().message);
      const auto answer = dns::parse_answer(*raw, asked);
      results_.push_back(answer && !answer->addresses.empty() ? answer->addresses[0].address.text()
                                                              : "no address");
    });
  }
  void run_until(size_t results, Duration at_most = 8s) {
    const Instant end = monotonic_now() + at_most;
    while (results_.size() < results && monotonic_now() < end) loop_->run_once(100ms);
    ASSERT_EQ(results_.size(), results);
  }

  std::unique_ptr<EventLoop> loop_ = std::move(*EventLoop::create());
  std::vector<std::string> results_;
};

TEST_F(ResolverTest, brings_the_answer_of_its_server) {
  Server server(*loop_,
                [](const Bytes& query, bool) { return answer_with(query, "93.184.215.14"); });
  auto it = resolver({server.address()});
  ask(*it, question());
  EXPECT_TRUE(results_.empty()) << "never from inside query()";
  run_until(1);
  EXPECT_THAT(results_, testing::ElementsAre("93.184.215.14"));
  EXPECT_EQ(it->outstanding(), 0U);
}

TEST_F(ResolverTest, asks_once_for_the_same_question) {
  Server server(*loop_,
                [](const Bytes& query, bool) { return answer_with(query, "93.184.215.14"); });
  auto it = resolver({server.address()});
  for (int i = 0; i < 5; ++i) ask(*it, question());
  ask(*it, question("b.example.org"));
  EXPECT_EQ(it->outstanding(), 2U);
  run_until(6);
  EXPECT_EQ(server.queries, 2);
}

TEST_F(ResolverTest, falls_back_to_tcp_when_the_answer_was_truncated) {
  int tcp_queries = 0;
  Server server(*loop_, [&](const Bytes& query, bool tcp) {
    tcp_queries += tcp ? 1 : 0;
    Bytes answer = answer_with(query, tcp ? "93.184.215.14" : "6.6.6.6");
    if (!tcp) answer[2] |= 2;
    return answer;
  });
  auto it = resolver({server.address()});
  ask(*it, question());
  run_until(1);
  EXPECT_THAT(results_, testing::ElementsAre("93.184.215.14"));
  EXPECT_EQ(tcp_queries, 1);
}

TEST_F(ResolverTest, asks_the_next_server_after_a_failure) {
  Server broken(*loop_, [](const Bytes& query, bool) { return failure(query); });
  Server good(*loop_, [](const Bytes& query, bool) { return answer_with(query, "93.184.215.14"); });
  auto it = resolver({broken.address(), good.address()});
  ask(*it, question());
  run_until(1);
  EXPECT_THAT(results_, testing::ElementsAre("93.184.215.14"));
  EXPECT_GE(broken.queries, 1);
}

TEST_F(ResolverTest, fails_when_every_server_fails) {
  Server broken(*loop_, [](const Bytes& query, bool) { return failure(query); });
  auto it = resolver({broken.address()});
  ask(*it, question());
  run_until(1);
  EXPECT_THAT(results_[0], testing::StartsWith("error: no resolver answered"));
}

TEST_F(ResolverTest, fails_at_once_without_servers) {
  auto it = resolver({});
  ask(*it, question());
  EXPECT_TRUE(results_.empty());
  run_until(1, 1s);
  EXPECT_EQ(results_[0], "error: the host has no resolver");
}

TEST_F(ResolverTest, gives_up_on_silence) {
  Server silent(*loop_, [](const Bytes&, bool) { return Bytes(); });
  auto it = resolver({silent.address()});
  const Instant start = monotonic_now();
  ask(*it, question());
  run_until(1);
  EXPECT_THAT(results_[0], testing::StartsWith("error: no resolver answered"));
  EXPECT_LE(monotonic_now() - start, Resolver::kDeadline + 1s);
  EXPECT_GE(silent.queries, 2) << "tried again";
}

TEST_F(ResolverTest, asks_outstanding_questions_again_where_the_servers_are_now) {
  Server silent(*loop_, [](const Bytes&, bool) { return Bytes(); });
  Server good(*loop_, [](const Bytes& query, bool) { return answer_with(query, "93.184.215.14"); });
  auto it = resolver({silent.address()});
  ask(*it, question());
  while (silent.queries == 0) loop_->run_once(100ms);
  ASSERT_FALSE(it->set_servers({"not an address"}));
  EXPECT_EQ(it->outstanding(), 1U);
  ASSERT_TRUE(it->set_servers({good.address()}));
  run_until(1, 1s);
  EXPECT_THAT(results_, testing::ElementsAre("93.184.215.14"));
}

TEST_F(ResolverTest, bounds_what_is_outstanding) {
  Server silent(*loop_, [](const Bytes&, bool) { return Bytes(); });
  auto it = resolver({silent.address()});
  for (size_t i = 0; i < Resolver::kMaxOutstanding; ++i)
    ask(*it, question("n" + std::to_string(i) + ".example.org"));
  ask(*it, question("one-more.example.org"));
  run_until(1, 1s);
  EXPECT_EQ(results_[0], "error: too many questions are outstanding");
}

TEST_F(ResolverTest, says_that_it_was_stopped) {
  Server silent(*loop_, [](const Bytes&, bool) { return Bytes(); });
  auto it = resolver({silent.address()});
  ask(*it, question());
  it.reset();
  EXPECT_THAT(results_, testing::ElementsAre("error: the resolver was stopped"));
}

TEST_F(ResolverTest, ignores_an_answer_to_another_question) {
  Server liar(*loop_, [this](const Bytes& query, bool) {
    const uint16_t id = static_cast<uint16_t>(query[0] << 8 | query[1]);
    return answer_with(dns::build_query(id, question("evil.net"), {}), "6.6.6.6");
  });
  auto it = resolver({liar.address()});
  ask(*it, question());
  run_until(1);
  EXPECT_NE(results_[0], "6.6.6.6");
}

TEST_F(ResolverTest, reads_every_form_of_a_server_and_refuses_others) {
  for (const char* good : {"192.168.1.1", "127.0.0.1:5353", "fd00::1", "[fd00::1]", "[fd00::1]:53"})
    EXPECT_TRUE(Resolver::create(*loop_, {good})) << good;
  for (const char* bad : {"", "dns.example.org", "1.2.3.4:0", "1.2.3.4:65536", "[1.2.3.4]:53",
                          "[fd00::1", "fd00::1]:53", "1.2.3.4:"})
    EXPECT_FALSE(Resolver::create(*loop_, {bad})) << bad;
}

}  // namespace
}  // namespace sandbox::gateway
