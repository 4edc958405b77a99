#include "cli/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::cli {
namespace {

using testing::HasSubstr;

PublishSpec spec(const char* address, int host, uint16_t guest) {
  PublishSpec out;
  out.address = address == nullptr ? std::nullopt : IpAddress::parse(address);
  if (host >= 0) out.host = static_cast<uint16_t>(host);
  out.guest = guest;
  return out;
}

TEST(Publish, ReadsWhatDockerReads) {
  const std::pair<const char*, PublishSpec> cases[] = {
      {"80", spec(nullptr, -1, 80)},
      {"8080:80", spec(nullptr, 8080, 80)},
      {"0:80", spec(nullptr, -1, 80)},
      {":80", spec(nullptr, -1, 80)},
      {"8080:80/tcp", spec(nullptr, 8080, 80)},
      {"0.0.0.0:8080:80", spec("0.0.0.0", 8080, 80)},
      {"127.0.0.1::80", spec("127.0.0.1", -1, 80)},
      {"[::1]:8080:80", spec("::1", 8080, 80)},
      {"[::]::65535", spec("::", -1, 65535)},
  };
  for (const auto& [word, expected] : cases) {
    const auto parsed = parse_publish(word);
    ASSERT_TRUE(parsed) << word << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, expected) << word;
  }
}

TEST(Publish, SaysWhatIsWrongWithOtherWords) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "''"},
      {"0", "'0' is not a port from 1"},
      {"80:0", "'0' is not a port from 1"},
      {"65536:80", "'65536'"},
      {"http:80", "'http' is not a port"},
      {"8000-8010:80", "ranges"},
      {"80-81", "ranges"},
      {"53:53/udp", "only TCP"},
      {"::1:8080:80", "brackets"},
      {"localhost:8080:80", "'localhost' is not an address"},
      {"[127.0.0.1]:8080:80", "not an address"},
      {"127.1:8080:80", "not an address"},
      {"08080:80", "'08080'"},
  };
  for (const auto& [word, what] : cases) {
    const auto parsed = parse_publish(word);
    ASSERT_FALSE(parsed) << word;
    EXPECT_THAT(parsed.error().message, HasSubstr(what)) << word;
    EXPECT_FALSE(parsed.error().hint.empty()) << word;
  }
}

TEST(Publish, AFreePortOfLoopbackIsTakenWhereNoneIsNamed) {
  const auto first = listen_at(spec(nullptr, -1, 80));
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->port.address.text(), "127.0.0.1");
  EXPECT_NE(first->port.port, 0);
  EXPECT_EQ(first->port.guest, 80);
}

TEST(Publish, APortInUseIsNamedWithItsAddress) {
  const auto first = listen_at(spec("127.0.0.2", -1, 80));
  ASSERT_TRUE(first);
  const auto second = listen_at(spec("127.0.0.2", first->port.port, 81));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message,
            fmt::format("port {} of 127.0.0.2 is in use already", first->port.port));
  // The same port of another address is another port.
  EXPECT_TRUE(listen_at(spec("127.0.0.3", first->port.port, 81)));
}

TEST(Publish, AnAddressThatIsNotOfThisHostIsNamed) {
  const auto made = listen_at(spec("192.0.2.1", 0, 80));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("192.0.2.1 is no address of this host"));
}

}  // namespace
}  // namespace sandbox::cli
