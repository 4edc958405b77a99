// The process without its main: many requests at once to a peer that does not read, and what ends
// the wire.

#include "files/service.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/socket.h"
#include "unit/files/fuse_client.h"

namespace sandbox::files {
namespace {

class ServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(temp_.path() / "f") << std::string(kMaxData, 'x');
    loop_ = std::move(*EventLoop::create());
    auto pair = socket_pair(SocketKind::kStream);
    ASSERT_TRUE(pair.has_value());
    guest_ = std::move(pair->first);
    Config config;
    config.shares.push_back({7, temp_.path().string(), false});
    auto service = Service::create(*loop_, std::move(pair->second), config, 1024);
    ASSERT_TRUE(service.has_value());
    service_ = std::move(*service);
    service_->on_end([this](Error error) {
      end_ = std::move(error);
      loop_->stop();
    });
    ASSERT_TRUE(service_->begin().has_value());
  }
  static Bytes framed(uint32_t share, const Bytes& request) {
    Bytes out(kFrameHeader);
    write_frame_header(out.data(), share, request.size());
    return out + request;
  }
  static Bytes init() {
    fuse_init_in in{};
    in.major = 7;
    in.minor = 40;
    return framed(7, FuseClient::request(FUSE_INIT, 0, bytes_of(in)));
  }
  void send(const Bytes& bytes) const {
    ASSERT_TRUE(write_all(guest_.get(), as_text(bytes)).has_value());
  }

  TempTree temp_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Service> service_;
  Fd guest_;
  std::optional<Error> end_;
};

TEST_F(ServiceTest, EveryRequestIsAnsweredThoughTheGuestReadsLate) {
  constexpr size_t kReads = 40;  // 40 MiB of replies, far above what may wait
  Bytes all = init() + framed(7, FuseClient::request(FUSE_LOOKUP, 1, name_bytes("f"))) +
              framed(7, FuseClient::request(FUSE_OPEN, 2, FuseClient::open_body(O_RDONLY)));
  for (size_t i = 0; i < kReads; ++i)
    all = all + framed(7, FuseClient::request(FUSE_READ, 2, FuseClient::read_body(1, 0, kMaxData)));
  send(all);
  size_t replies = 0;
  size_t bytes = 0;
  std::thread reader([&] {
    Decoder decoder;
    Bytes piece(1U << 20);
    while (replies < kReads + 3) {
      const ssize_t n = ::read(guest_.get(), piece.data(), piece.size());
      if (n <= 0) break;
      decoder.append(ByteView(piece).first(static_cast<size_t>(n)));
      for (auto m = decoder.next(); m.has_value() && m->has_value(); m = decoder.next()) {
        ++replies;
        bytes += (*m)->payload.size();
      }
    }
    ::shutdown(guest_.get(), SHUT_RDWR);
  });
  loop_->run();
  reader.join();
  EXPECT_EQ(replies, kReads + 3);
  EXPECT_GT(bytes, kReads * kMaxData);
  EXPECT_EQ(end_->code, Code::kCancelled);
}

TEST_F(ServiceTest, AMessageForAShareThatIsNotThereEndsTheWire) {
  send(framed(8, FuseClient::request(FUSE_STATFS, 1, {})));
  loop_->run();
  EXPECT_EQ(end_->code, Code::kProtocol);
}

TEST_F(ServiceTest, ABrokenFrameEndsTheWire) {
  send(Bytes(64, 0xFF));
  loop_->run();
  EXPECT_EQ(end_->code, Code::kProtocol);
}

TEST_F(ServiceTest, ABrokenRequestEndsTheWire) {
  Bytes request = FuseClient::request(FUSE_STATFS, 1, {});
  request[0] = 200;
  send(framed(7, request));
  loop_->run();
  EXPECT_EQ(end_->code, Code::kProtocol);
}

TEST_F(ServiceTest, AHostChangeBecomesANotification) {
  send(init() + framed(7, FuseClient::request(FUSE_LOOKUP, 1, name_bytes("f"))));
  loop_->run_once(std::chrono::seconds(5));
  std::ofstream(temp_.path() / "f") << "changed";
  loop_->run_once(std::chrono::seconds(5));
  Bytes got(4096);
  const ssize_t n = ::read(guest_.get(), got.data(), got.size());
  ASSERT_GT(n, 0);
  Decoder decoder;
  decoder.append(ByteView(got).first(static_cast<size_t>(n)));
  bool notified = false;
  for (auto m = decoder.next(); m.has_value() && m->has_value(); m = decoder.next()) {
    fuse_out_header header{};
    std::memcpy(&header, (*m)->payload.data(), sizeof header);
    notified = notified || (header.unique == 0 && header.error == FUSE_NOTIFY_INVAL_INODE);
  }
  EXPECT_TRUE(notified);
}

TEST(ServiceConfig, IsStrict) {
  EXPECT_TRUE(
      parse_config(R"({"uid":1000,"gid":1000,"shares":[{"id":1,"path":"/x","read_only":true}]})")
          .has_value());
  for (const char* bad :
       {"", "[]", "{}", R"({"uid":-1,"gid":0,"shares":[]})", R"({"uid":1,"gid":1})",
        R"({"uid":1,"gid":1,"shares":[],"more":1})", R"({"uid":1,"gid":1,"shares":[1]})",
        R"({"uid":1,"gid":1,"shares":[{"id":1,"path":"relative"}]})",
        R"({"uid":1,"gid":1,"shares":[{"id":1,"path":"/a"},{"id":1,"path":"/b"}]})",
        R"({"uid":1,"gid":1,"shares":[{"id":1,"path":"/a","read_only":1}]})",
        R"({"uid":1,"gid":1,"shares":[{"id":4294967296,"path":"/a"}]})",
        R"({"uid":1,"gid":1,"shares":[{"id":1,"path":"/a","x":1}]})"})
    EXPECT_FALSE(parse_config(bad).has_value()) << bad;
}

}  // namespace
}  // namespace sandbox::files
