#include "supervisor/resolv_conf.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

using Servers = std::vector<std::string>;

TEST(ParseNameservers, TakesThreeInOrder) {
  EXPECT_EQ(parse_nameservers(
                "# made by hand\nsearch example.org\nnameserver 9.9.9.9\nnameserver\t2620:fe::fe \n"
                "options edns0\nnameserver 1.1.1.1 # last\nnameserver 8.8.8.8\n"),
            (Servers{"9.9.9.9", "2620:fe::fe", "1.1.1.1"}));
}

TEST(ParseNameservers, PassesOverLinesThatAreNone) {
  EXPECT_EQ(parse_nameservers("nameserver\nnameservers 1.1.1.1\n nameserver 1.1.1.1\nnameserver "
                              "one.one\nnameserver 1.1\n"),
            Servers{"127.0.0.1"});
}

TEST(ParseNameservers, NoneMeansTheLocalOneAsInTheCLibrary) {
  EXPECT_EQ(parse_nameservers(""), Servers{"127.0.0.1"});
}

TEST(ParseNameservers, KeepsTheZoneOfALinkLocalServer) {
  EXPECT_EQ(parse_nameservers("nameserver fe80::1%eth0\n"), Servers{"fe80::1%eth0"});
}

}  // namespace
}  // namespace sandbox
