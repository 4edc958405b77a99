// Requests to a running sandbox; the gateway is played by the test.
#include "supervisor/control.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/socket.h"

namespace sandbox {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Fd listener(int family = AF_INET) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress at = to_socket_address(
      family == AF_INET ? *IpAddress::parse("127.0.0.1") : *IpAddress::parse("::1"), 0);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.size), 0);
  EXPECT_EQ(::listen(fd.get(), 1), 0);
  return fd;
}

class ControlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*EventLoop::create());
    auto pair = *socket_pair(SocketKind::kSeqPacket);
    ours_ = std::move(pair.first);
    gateway_ = std::move(pair.second);
    ASSERT_TRUE(set_nonblocking(gateway_.get(), true));
    link_ = std::make_unique<GatewayLink>(*loop_, ours_.get());
    ASSERT_TRUE(link_->watch());
    Control::Events events;
    events.note = [this](std::string_view text) { notes_.emplace_back(text); };
    events.rules_changed = [this](const Control::Rules& rules) {
      in_force_ = rules;
      return recorded_;
    };
    control_ =
        std::make_unique<Control>(*link_, Control::Rules{{"a.example.org"}, {}}, std::move(events));
  }

  void add(std::vector<std::string> allow, std::vector<std::string> deny = {}) {
    control_->add_rules({std::move(allow), std::move(deny)}, "by the test",
                        [this](const Result<std::vector<std::string>>& added) {
                          outcomes_.push_back(added ? fmt::format("{}", fmt::join(*added, " "))
                                                    : added.error().message);
                        });
  }

  void publish(Fd socket, uint16_t guest) {
    control_->publish(std::move(socket), guest, [this](const Result<control::Port>& port) {
      outcomes_.push_back(port ? "published" : port.error().message);
    });
  }
  // What the gateway was told, and its answer.
  json told(const std::string& answer = R"({"done":true})") {
    const auto received = receive_with_fds(gateway_.get(), 1 << 20);
    if (!received || received->bytes.empty()) return nullptr;
    descriptors_ = received->fds.size();
    EXPECT_TRUE(send_with_fds(gateway_.get(), answer, {}));
    for (int i = 0; i < 3; ++i) loop_->run_once(0ns);
    return json::parse(received->bytes);
  }

  std::unique_ptr<EventLoop> loop_;
  Fd ours_;
  Fd gateway_;
  std::unique_ptr<GatewayLink> link_;
  std::unique_ptr<Control> control_;
  std::vector<std::string> notes_;
  Control::Rules in_force_;
  Status recorded_;
  std::vector<std::string> outcomes_;
  size_t descriptors_ = 0;
};

TEST_F(ControlTest, AListeningSocketGoesToTheGatewayWithItsPort) {
  publish(listener(), 80);
  EXPECT_THAT(outcomes_, ElementsAre());
  const json message = told();
  EXPECT_EQ(message["op"], "publish");
  EXPECT_EQ(message["port"], 80);
  EXPECT_EQ(descriptors_, 1U);
  EXPECT_THAT(outcomes_, ElementsAre("published"));
}

TEST_F(ControlTest, OneRequestIsWithTheGatewayAtATimeAndEachHearsItsOwnAnswer) {
  publish(listener(), 80);
  publish(listener(AF_INET6), 81);
  publish(listener(), 82);
  EXPECT_EQ(told()["port"], 80);
  EXPECT_EQ(told(R"({"error":"no","hint":"never"})")["port"], 81);
  EXPECT_EQ(told()["port"], 82);
  EXPECT_THAT(outcomes_, ElementsAre("published", "no", "published"));
}

TEST_F(ControlTest, WhatIsNoListeningTcpSocketIsRefused) {
  Fd connected(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Fd datagram(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  auto pair = *socket_pair(SocketKind::kStream);
  publish(std::move(connected), 80);
  publish(std::move(datagram), 80);
  publish(std::move(pair.first), 80);
  publish(*memory_file("file", "text"), 80);
  EXPECT_THAT(outcomes_,
              ElementsAre(HasSubstr("no listening TCP"), HasSubstr("no listening TCP"),
                          HasSubstr("no listening TCP"), HasSubstr("the socket to publish: ")))
      << outcomes_.back();
  EXPECT_EQ(told(), nullptr);
}

TEST_F(ControlTest, AGatewayThatIsGoneIsSurvived) {
  publish(listener(), 80);
  gateway_.reset();
  for (int i = 0; i < 3; ++i) loop_->run_once(0ns);
  publish(listener(), 81);  // its process is watched elsewhere; this only must not fall over
  EXPECT_THAT(outcomes_, ElementsAre());
}

TEST_F(ControlTest, AnAnswerThatNobodyAskedForChangesNothing) {
  ASSERT_TRUE(send_with_fds(gateway_.get(), R"({"error":"the wire is gone"})", {}));
  for (int i = 0; i < 3; ++i) loop_->run_once(0ns);
  publish(listener(), 80);
  EXPECT_EQ(told()["port"], 80);
  EXPECT_THAT(outcomes_, ElementsAre("published"));
}

TEST_F(ControlTest, RulesAreAddedToThoseInForceInOneStep) {
  add({"*.EXAMPLE.net", "a.example.org"}, {"ads.example.net"});
  const json message = told();
  EXPECT_EQ(message["op"], "policy");
  EXPECT_EQ(message["allow"], (json{"a.example.org", "*.example.net"}));
  EXPECT_EQ(message["deny"], (json{"ads.example.net"}));
  EXPECT_THAT(outcomes_, ElementsAre("*.example.net ads.example.net"));
  EXPECT_THAT(in_force_.allow, ElementsAre("a.example.org", "*.example.net"));
  EXPECT_THAT(notes_,
              ElementsAre("policy changed: allow *.example.net deny ads.example.net, by the test"));
}

TEST_F(ControlTest, ARefusedChangeKeepsWhatIsInForce) {
  add({"b.example.org"});
  add({"c.example.org"});
  told(R"({"error":"full"})");
  EXPECT_EQ(told()["allow"], (json{"a.example.org", "c.example.org"}));
  EXPECT_THAT(outcomes_, ElementsAre("full", "c.example.org"));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("allow c.example.org")));
  EXPECT_THAT(in_force_.allow, ElementsAre("a.example.org", "c.example.org"));
}

TEST_F(ControlTest, RulesThatCannotBeRecordedAreSaidToBeInForce) {
  recorded_ = fail(Code::kIo, "no space is left");
  add({"b.example.org"});
  told();
  EXPECT_THAT(outcomes_,
              ElementsAre("the rules are in force, but not on record: no space is left"));
  add({"b.example.org"});
  EXPECT_EQ(told(), nullptr) << "they are";
}

TEST_F(ControlTest, TwoChangesAtOnceAreBothInForce) {
  add({"b.example.org"});
  add({}, {"c.example.org"});
  told();
  const json second = told();
  EXPECT_EQ(second["allow"], (json{"a.example.org", "b.example.org"}));
  EXPECT_EQ(second["deny"], (json{"c.example.org"}));
}

TEST_F(ControlTest, WhatIsNoRuleOrNotNewNeverReachesTheGateway) {
  add({"b.example.org", "a.*.b"});
  add({"A.example.org."});
  EXPECT_THAT(outcomes_, ElementsAre(HasSubstr("'a.*.b'"), ""));
  EXPECT_EQ(told(), nullptr);
}

TEST_F(ControlTest, MoreRulesThanOneMessageHoldsAreRefused) {
  std::vector<std::string> many;
  for (int i = 0; i < 12'000; ++i) many.push_back(fmt::format("n{}.example.org", i));
  add(many);
  EXPECT_THAT(outcomes_, ElementsAre(HasSubstr("128 KiB in all")));
  add({"b.example.org"});
  told();
  EXPECT_THAT(outcomes_.back(), "b.example.org");
}

// ---- clients ----

class ControlClientTest : public ControlTest {
 protected:
  void SetUp() override {
    ControlTest::SetUp();
    char name[] = "/tmp/control-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    server_ = std::move(*ControlServer::create(*loop_, dir_));
    ASSERT_TRUE(server_->start([this](const control::Request& request, std::vector<Fd> descriptors,
                                      const ControlServer::Client& from) {
      control_->handle(request, std::move(descriptors), from);
    }));
  }
  void TearDown() override {
    control_.reset();
    server_.reset();
    std::filesystem::remove_all(dir_);
  }
  Fd client() {
    auto pair = *socket_pair(SocketKind::kSeqPacket);
    EXPECT_TRUE(server_->adopt(std::move(pair.second)));
    EXPECT_TRUE(set_nonblocking(pair.first.get(), true));
    return std::move(pair.first);
  }
  void turn() {
    for (int i = 0; i < 4; ++i) loop_->run_once(0ns);
  }
  void say(const Fd& to, const std::string& message) {
    ASSERT_TRUE(send_with_fds(to.get(), message, {}));
    turn();
  }
  // Everything that has come to a client.
  static std::string heard(const Fd& fd) {
    std::string all;
    for (auto received = receive_with_fds(fd.get(), 1 << 16); received && !received->bytes.empty();
         received = receive_with_fds(fd.get(), 1 << 16))
      all += (all.empty() ? "" : " ") + received->bytes;
    return all;
  }
  static std::string asks(uint64_t id, const std::string& rule) {
    return control::encode(control::Event{control::Asked{id, rule, "look up " + rule}});
  }
  static constexpr const char* kDone = R"({"done":true,"ports":[],"rules":[]})";

  std::string dir_;
  std::unique_ptr<ControlServer> server_;
};

// ---- ports ----

TEST_F(ControlClientTest, APortIsPublishedUntilTheGatewayHasTakenItBack) {
  publish(listener(), 80);
  publish(listener(AF_INET6), 80);
  publish(listener(), 81);
  for (int i = 0; i < 3; ++i) told();
  const Fd person = client();
  const auto ports = [&] {
    say(person, control::encode(control::Ports{}));
    return control::parse_reply(heard(person))->ports.size();
  };
  EXPECT_EQ(ports(), 3U);
  say(person, control::encode(control::Unpublish{"", 0, 80}));
  EXPECT_EQ(told(R"({"error":"not now"})"), (json{{"op", "unpublish"}, {"id", 1}}));
  EXPECT_EQ(told(), (json{{"op", "unpublish"}, {"id", 2}}));
  const auto reply = control::parse_reply(heard(person));
  ASSERT_FALSE(reply) << "one of them is still open";
  EXPECT_EQ(reply.error().message, "not now");
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("no longer published: [::1]:")));
  EXPECT_EQ(ports(), 2U);
  say(person, control::encode(control::Unpublish{"", 0, 80}));
  EXPECT_EQ(told(), (json{{"op", "unpublish"}, {"id", 1}}));
  EXPECT_EQ(control::parse_reply(heard(person))->ports.size(), 1U);
  EXPECT_EQ(ports(), 1U);
}

TEST_F(ControlClientTest, APortThatIsNotPublishedIsNotTakenBack) {
  publish(listener(), 80);
  told();
  const Fd person = client();
  say(person, control::encode(control::Unpublish{"", 0, 81}));
  say(person, control::encode(control::Unpublish{"127.0.0.9", 0, 80}));
  EXPECT_EQ(told(), nullptr);
  EXPECT_THAT(heard(person), HasSubstr("no such port is published"));
}

// ---- questions ----

TEST_F(ControlClientTest, WhoWantsToBeToldIsToldOfThoseThatAreOpenAndOfNewOnes) {
  say(gateway_, asks(1, "a.example.org"));
  const Fd person = client();
  say(person, control::encode(control::Questions{}));
  EXPECT_EQ(told(), (json{{"op", "ask"}, {"on", true}}));
  say(gateway_, asks(2, "b.example.org"));
  say(gateway_, R"({"over":1})");
  EXPECT_EQ(heard(person), std::string(kDone) + " " + asks(1, "a.example.org") + " " +
                               asks(2, "b.example.org") + R"( {"over":1})");
  const Fd other = client();
  say(other, control::encode(control::Questions{}));
  EXPECT_EQ(heard(other), std::string(kDone) + " " + asks(2, "b.example.org"));
}

TEST_F(ControlClientTest, OnceAndNoAreAnswersToTheGatewayAndAreOnRecord) {
  const Fd person = client();
  say(gateway_, asks(1, "a.example.org"));
  say(gateway_, asks(2, "b.example.org"));
  say(person, control::encode(control::Answer{1, control::Choice::kOnce}));
  EXPECT_EQ(told(), (json{{"op", "answer"}, {"id", 1}, {"allow", true}}));
  say(person, control::encode(control::Answer{2, control::Choice::kDeny}));
  EXPECT_EQ(told(), (json{{"op", "answer"}, {"id", 2}, {"allow", false}}));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("asked: a.example.org allowed once, by uid"),
                                  HasSubstr("asked: b.example.org denied, by uid")));
}

TEST_F(ControlClientTest, ForTheSessionIsANewRule) {
  const Fd person = client();
  say(gateway_, asks(1, "b.example.org"));
  say(person, control::encode(control::Answer{1, control::Choice::kSession}));
  EXPECT_EQ(told()["allow"], (json{"a.example.org", "b.example.org"}));
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("policy changed: allow b.example.org, asked, by uid")));
  EXPECT_EQ(heard(person), kDone);
}

TEST_F(ControlClientTest, AnAnswerThatIsTooLateIsSaidToBe) {
  const Fd person = client();
  say(gateway_, asks(1, "b.example.org"));
  say(gateway_, R"({"over":1})");
  say(person, control::encode(control::Answer{1, control::Choice::kOnce}));
  EXPECT_THAT(heard(person), HasSubstr("question 1 is over"));
}

TEST_F(ControlClientTest, WhenTheLastOneLeavesNobodyIsAskedAnyMore) {
  Fd one = client();
  Fd two = client();
  say(one, control::encode(control::Questions{}));
  told();
  say(two, control::encode(control::Questions{}));
  one.reset();
  turn();
  EXPECT_EQ(told(), nullptr);
  two.reset();
  turn();
  EXPECT_EQ(told(), (json{{"op", "ask"}, {"on", false}}));
}

// What is shown is what is answered, also when the gateway has fallen to the guest.
TEST_F(ControlClientTest, AQuestionThatDoesNotNameItsRuleIsAnsweredNoAndShownToNobody) {
  const Fd person = client();
  say(person, control::encode(control::Questions{}));
  told();
  heard(person);
  const auto ask = [&](const std::string& rule, const std::string& text) {
    say(gateway_, control::encode(control::Event{control::Asked{7, rule, text}}));
    return told();
  };
  const json no = {{"op", "answer"}, {"id", 7}, {"allow", false}};
  EXPECT_EQ(ask("evil.example.net", "look up a.example.org"), no);
  EXPECT_EQ(ask("example.org", "look up a.example.org"), no);
  EXPECT_EQ(ask("*.example.org", "look up *.example.org"), no);
  EXPECT_EQ(ask("0.0.0.0/0", "connect to 0.0.0.0/0"), no);
  EXPECT_EQ(ask("b.example.org\n*.example.net", "look up b.example.org\n*.example.net"), no);
  EXPECT_EQ(heard(person), "");
  EXPECT_EQ(ask("192.0.2.1:22", "connect to 192.0.2.1:22, which no name led to"), nullptr);
  EXPECT_THAT(heard(person), HasSubstr("192.0.2.1:22"));
}

TEST_F(ControlClientTest, AGatewayThatFloodsIsAnsweredNo) {
  for (uint64_t id = 1; id <= Control::kMaxQuestions; ++id)
    say(gateway_, asks(id, "x.example.org"));
  EXPECT_EQ(told(), nullptr);
  say(gateway_, asks(1000, "x.example.org"));
  EXPECT_EQ(told(), (json{{"op", "answer"}, {"id", 1000}, {"allow", false}}));
  say(gateway_, asks(1001, std::string(5000, 'x')));
  EXPECT_EQ(told()["id"], 1001);
}

}  // namespace
}  // namespace sandbox
