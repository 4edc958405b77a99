#include "machine/qmp.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/socket.h"

namespace sandbox {
namespace {

using Kind = QmpMessage::Kind;

constexpr std::string_view kGreeting =
    R"({"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}}, "capabilities": ["oob"]}})"
    "\r\n";

TEST(QmpParser, KnowsTheFourKindsOfMessages) {
  QmpParser parser;
  ASSERT_TRUE(parser.feed(kGreeting));
  ASSERT_TRUE(parser.feed(
      "{\"return\": {\"status\": \"running\"}, \"id\": 7}\r\n"
      "{\"id\": 8, \"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\r\n"
      "{\"timestamp\": {\"seconds\": 1}, \"event\": \"SHUTDOWN\", \"data\": {\"guest\": true}}\n"));
  QmpMessage message{};
  ASSERT_TRUE(parser.next(message));
  EXPECT_EQ(message.kind, Kind::kGreeting);
  ASSERT_TRUE(parser.next(message));
  EXPECT_EQ(message.kind, Kind::kReturn);
  EXPECT_EQ(message.id, 7U);
  EXPECT_EQ(message.text, R"({"status":"running"})");
  ASSERT_TRUE(parser.next(message));
  EXPECT_EQ(message.kind, Kind::kError);
  EXPECT_EQ(message.text, "no");
  ASSERT_TRUE(parser.next(message));
  EXPECT_EQ(message.kind, Kind::kEvent);
  EXPECT_EQ(message.name, "SHUTDOWN");
  EXPECT_FALSE(parser.next(message));
}

TEST(QmpParser, TakesBytesInAnyPieces) {
  QmpParser parser;
  for (const char c : kGreeting) ASSERT_TRUE(parser.feed({&c, 1}));
  QmpMessage message{};
  EXPECT_TRUE(parser.next(message));
}

TEST(QmpParser, EndsAtAnythingThatIsNoMessageAndStaysEnded) {
  for (const std::string_view hostile :
       {"hello\n", "[]\n", "{}\n", "{\"return\"\n", "{\"event\": 5}\n", "{\"error\": \"x\"}\n",
        "\xff\xfe\n", "\x01\n"}) {
    QmpParser parser;
    EXPECT_FALSE(parser.feed(hostile)) << hostile;
    EXPECT_FALSE(parser.feed(kGreeting));
  }
}

TEST(QmpParser, BoundsLinesAndQueue) {
  QmpParser lines;
  const std::string chunk(65536, 'x');
  Status status;
  size_t fed = 0;
  while (status && fed < (16U << 20)) {
    status = lines.feed(chunk);
    fed += chunk.size();
  }
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kLimit);
  EXPECT_LE(fed, QmpParser::kMaxLine + chunk.size());

  QmpParser queue;
  std::string events;
  for (size_t i = 0; i <= QmpParser::kMaxPending; ++i) events += "{\"event\": \"E\"}\n";
  EXPECT_FALSE(queue.feed(events));
}

TEST(QmpParser, DeepNestingIsRefusedBeforeItCanExhaustTheStack) {
  QmpParser fine;
  EXPECT_TRUE(fine.feed("{\"return\": [[[[[[1]]]]]]}\n"));
  QmpParser parser;
  std::string deep = "{\"return\": ";
  deep.append(100000, '[');
  deep.append(100000, ']');
  EXPECT_FALSE(parser.feed(deep + "}\n"));
}

TEST(QmpCommand, IsOneLineOfJson) {
  EXPECT_EQ(qmp_command("cont", "{}", 3), "{\"execute\":\"cont\",\"id\":3}\n");
  EXPECT_EQ(qmp_command("getfd", R"({"fdname":"state"})", 4),
            "{\"arguments\":{\"fdname\":\"state\"},\"execute\":\"getfd\",\"id\":4}\n");
}

class QmpClientTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pair = socket_pair(SocketKind::kStream);
    ASSERT_TRUE(pair);
    client_ = QmpClient(std::move(pair->first));
    qemu_ = std::move(pair->second);
  }
  void qemu_says(std::string_view text) { ASSERT_TRUE(write_all(qemu_.get(), text)); }
  static Instant soon() { return monotonic_now() + 5s; }
  QmpClient client_;
  Fd qemu_;
};

TEST_F(QmpClientTest, NegotiatesAndKeepsEventsThatComeBetween) {
  qemu_says(kGreeting);
  qemu_says("{\"return\": {}, \"id\": 1}\n");
  ASSERT_TRUE(client_.negotiate(soon()));
  qemu_says("{\"event\": \"RESUME\"}\n{\"return\": {}, \"id\": 2}\n");
  ASSERT_TRUE(client_.execute("cont", "{}", soon()));
  const auto events = client_.take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].name, "RESUME");
}

TEST_F(QmpClientTest, ARefusalIsAnErrorWithQemusWords) {
  qemu_says(
      "{\"id\": 1, \"error\": {\"class\": \"GenericError\", \"desc\": \"Failed to get "
      "\\\"write\\\" lock\"}}\n");
  const auto reply = client_.execute("cont", "{}", soon());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().message, "QEMU refused cont: Failed to get \"write\" lock");
}

TEST_F(QmpClientTest, SilenceEndsAtTheDeadlineAndHangingUpAtOnce) {
  auto reply = client_.execute("cont", "{}", monotonic_now());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kUnavailable);
  qemu_.reset();
  reply = client_.execute("cont", "{}", soon());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kIo);
}

TEST_F(QmpClientTest, AnAnswerToNothingThatWasAskedIsAViolation) {
  qemu_says("{\"return\": {}, \"id\": 99}\n");
  const auto reply = client_.execute("cont", "{}", soon());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, Code::kProtocol);
}

TEST_F(QmpClientTest, WaitsForTheEventThatWasNamed) {
  qemu_says(
      "{\"event\": \"STOP\"}\n{\"event\": \"MIGRATION\", \"data\": {\"status\": \"completed\"}}\n");
  const auto event = client_.wait_event({"MIGRATION"}, soon());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->text, R"({"status":"completed"})");
  EXPECT_EQ(client_.take_events().size(), 1U);
}

}  // namespace
}  // namespace sandbox
