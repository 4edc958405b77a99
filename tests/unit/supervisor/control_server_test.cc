// The control socket, its clients played by the test over real sockets on a loop that is stepped by
// hand.
#include "supervisor/control_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>

#include "base/socket.h"

namespace sandbox {
namespace {

class ControlServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/control-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    // Longer than an address of a unix socket can be.
    dir_ = root_ + "/" + std::string(100, 'x') + "/" + std::string(100, 'y');
    std::filesystem::create_directories(dir_);
    loop_ = std::move(*EventLoop::create());
    make();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void make() {
    auto server = ControlServer::create(*loop_, dir_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    ASSERT_TRUE(server_->start([this](const control::Request&, std::vector<Fd> descriptors,
                                      const ControlServer::Client& from) {
      ++requests_;
      descriptors_ += descriptors.size();
      last_ = from;
      if (answers_) from->send(control::encode(control::Reply{}));
    }));
  }
  Fd connect() {
    const Fd directory = std::move(*open_file(dir_, O_PATH | O_DIRECTORY));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::snprintf(to.sun_path, sizeof to.sun_path, "%s", control_socket_path(directory).c_str());
    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    turn();
    return fd;
  }
  void turn() {
    for (int i = 0; i < 4; ++i) loop_->run_once(0ns);
  }
  void ask(const Fd& fd, const std::string& text = control::encode(control::Ports{})) {
    ASSERT_TRUE(send_with_fds(fd.get(), text, {}));
    turn();
  }
  static std::string read(const Fd& fd) {
    char buffer[4096];
    const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0) return "nothing";
    return n == 0 ? "end" : std::string(buffer, static_cast<size_t>(n));
  }

  std::string root_;
  std::string dir_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<ControlServer> server_;
  ControlServer::Client last_;
  int requests_ = 0;
  size_t descriptors_ = 0;
  bool answers_ = true;
};

TEST_F(ControlServerTest, AnswersARequestWhateverTheLengthOfItsPath) {
  const Fd client = connect();
  ask(client);
  EXPECT_EQ(read(client), R"({"done":true,"ports":[],"rules":[]})");
  EXPECT_EQ(last_->peer().uid, ::geteuid());
  EXPECT_EQ(last_->peer().pid, ::getpid());
}

TEST_F(ControlServerTest, OnlyTheUserHimselfMayOpenIt) {
  struct stat st {};
  ASSERT_EQ(::stat((dir_ + "/control").c_str(), &st), 0);
  EXPECT_TRUE(S_ISSOCK(st.st_mode));
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
}

TEST_F(ControlServerTest, TakesThePlaceOfASocketThatAKilledOneLeft) {
  server_.reset();
  ASSERT_TRUE(std::filesystem::exists(dir_ + "/control"));
  make();
  const Fd client = connect();
  ask(client);
  EXPECT_THAT(read(client), testing::HasSubstr("done"));
}

TEST_F(ControlServerTest, AnOfferedDescriptorArrivesWithItsMessage) {
  const Fd client = connect();
  ASSERT_TRUE(send_with_fds(client.get(), control::encode(control::Publish{80}), {0}));
  turn();
  EXPECT_EQ(descriptors_, 1U);
}

TEST_F(ControlServerTest, WhatIsNoRequestIsAnErrorAndTheNextOneIsAnswered) {
  const Fd client = connect();
  ask(client, "reboot");
  EXPECT_THAT(read(client), testing::HasSubstr("not a JSON object"));
  ask(client, std::string(control::kMaxMessage + 1, ' '));
  EXPECT_THAT(read(client), testing::HasSubstr("longer than"));
  EXPECT_EQ(requests_, 0);
  ask(client);
  EXPECT_THAT(read(client), testing::HasSubstr("done"));
}

TEST_F(ControlServerTest, OneTooManyIsTurnedAwayInWordsAndARoomThatIsLeftIsGivenAgain) {
  std::vector<Fd> clients;
  for (size_t i = 0; i < ControlServer::kMaxConnections; ++i) clients.push_back(connect());
  EXPECT_EQ(server_->connections(), ControlServer::kMaxConnections);
  Fd refused = connect();
  EXPECT_THAT(read(refused), testing::HasSubstr("control connections already"));
  EXPECT_EQ(read(refused), "end");
  clients.pop_back();
  turn();
  const Fd welcome = connect();
  ask(welcome);
  EXPECT_THAT(read(welcome), testing::HasSubstr("done"));
}

TEST_F(ControlServerTest, AClientThatDoesNotReadIsCutOff) {
  answers_ = false;
  const Fd client = connect();
  ask(client);
  bool closed = false;
  last_->on_close([&] { closed = true; });
  const std::string big(60'000, 'x');
  for (int i = 0; i < 200 && last_->open(); ++i) {
    last_->send(big);
    turn();
  }
  EXPECT_FALSE(last_->open());
  EXPECT_TRUE(closed);
  EXPECT_EQ(server_->connections(), 0U);
}

TEST_F(ControlServerTest, AnAnswerMayComeLaterAndOnlyWhileTheClientIsThere) {
  answers_ = false;
  Fd client = connect();
  ask(client);
  last_->send("later");
  EXPECT_EQ(read(client), "later");
  bool closed = false;
  last_->on_close([&] { closed = true; });
  client.reset();
  turn();
  EXPECT_TRUE(closed);
  EXPECT_FALSE(last_->open());
  last_->send("to nobody");
}

TEST_F(ControlServerTest, AConnectionMadeInAnotherWayIsOneLikeTheOthers) {
  auto pair = *socket_pair(SocketKind::kSeqPacket);
  ASSERT_TRUE(server_->adopt(std::move(pair.second)));
  ASSERT_TRUE(set_nonblocking(pair.first.get(), true));
  ask(pair.first);
  EXPECT_THAT(read(pair.first), testing::HasSubstr("done"));
}

}  // namespace
}  // namespace sandbox
