#include "policy/reach.h"

#include <gtest/gtest.h>

namespace sandbox::policy {
namespace {

TEST(Reach, SaysHowMuchARuleAllows) {
  const std::pair<const char*, const char*> cases[] = {
      {"a.example.org:443", "TCP port 443 of a.example.org, wherever it resolves in public space"},
      {"*.example.org",
       "ping and every TCP port but those of resolvers (53, 853, 5353, 5355) of example.org and "
       "every name below it, wherever it resolves in public space"},
      {"db.example.org@10.0.0.0/8:5432",
       "TCP port 5432 of db.example.org, where it resolves inside 10.0.0.0/8"},
      {"udp/ntp.example.org:123",
       "UDP port 123 of ntp.example.org, wherever it resolves in public space"},
      {"udp/192.0.2.1", "every UDP port but 443 and those of resolvers of 192.0.2.1"},
      {"icmp/[2001:db8::1]", "ping of 2001:db8::1"},
      {"plain/mail.example.org:25",
       "TCP port 25 (the server may speak first, no name is asked for) of mail.example.org, "
       "wherever it resolves in public space"},
      {"proxy/10.0.0.1:3128",
       "TCP port 3128 (an HTTP proxy: what is asked of it is judged by the rules as well) of "
       "10.0.0.1"},
      {"10.0.0.0/8:22",
       "TCP port 22 of 10.0.0.0/8, but not loopback, link-local or addresses of this host in it"},
      {"169.254.0.0/16:80", "TCP port 80 of 169.254.0.0/16, but not addresses of this host in it"},
      {"host.internal:8080", "TCP port 8080 of this host's own loopback"},
  };
  for (const auto& [rule, reach] : cases) {
    const auto parsed = HostPattern::parse(rule);
    ASSERT_TRUE(parsed) << rule;
    EXPECT_EQ(allow_reach(*parsed), reach);
  }
}

}  // namespace
}  // namespace sandbox::policy
