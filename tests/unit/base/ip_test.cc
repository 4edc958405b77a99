#include "base/ip.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

TEST(Ipv4, TakesDottedDecimalOnly) {
  EXPECT_EQ(Ipv4::parse("127.0.0.1")->value, 0x7f000001U);
  for (const auto bad : {"", "127.1", "0x7f.1", "2130706433", "1.2.3.04", "1.2.3.256", "1.2.3",
                         "1.2.3.4.5", "1.2.3.4 "})
    EXPECT_FALSE(Ipv4::parse(bad)) << bad;
}

TEST(IpAddress, AMappedAddressEqualsItsIpv4Form) {
  EXPECT_EQ(*IpAddress::parse("::ffff:10.0.0.1"), *IpAddress::parse("10.0.0.1"));
  EXPECT_TRUE(IpAddress::parse("::ffff:10.0.0.1")->is_v4());
  EXPECT_EQ(IpAddress::parse("2001:DB8::1")->text(), "2001:db8::1");
  EXPECT_FALSE(IpAddress::parse("fe80::1%eth0"));
  EXPECT_FALSE(IpAddress::parse("[::1]"));
}

TEST(Cidr, ContainsExactlyItsRange) {
  const auto net = *Cidr::parse("10.2.0.0/15");
  EXPECT_TRUE(net.contains(*IpAddress::parse("10.2.0.0")));
  EXPECT_TRUE(net.contains(*IpAddress::parse("10.3.255.255")));
  EXPECT_FALSE(net.contains(*IpAddress::parse("10.1.255.255")));
  EXPECT_FALSE(net.contains(*IpAddress::parse("10.4.0.0")));
  EXPECT_EQ(net.text(), "10.2.0.0/15");
}

TEST(Cidr, RefusesHostBitsAndOddPrefixes) {
  for (const auto bad : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/08", "/8", "10.0.0.0",
                         "::1/64", "::/129"})
    EXPECT_FALSE(Cidr::parse(bad)) << bad;
  EXPECT_TRUE(Cidr::parse("0.0.0.0/0"));
  EXPECT_TRUE(Cidr::parse("0.0.0.0/0")->contains(*IpAddress::parse("9.9.9.9")));
  EXPECT_FALSE(Cidr::parse("0.0.0.0/0")->contains(*IpAddress::parse("2001:db8::1")));
}

TEST(SpecialUse, CoversTheRegistryAndItsMappedForms) {
  for (const auto inside : {"0.1.2.3",         "10.255.255.255",  "100.64.0.1",   "127.9.9.9",
                            "169.254.169.254", "172.31.255.255",  "192.0.0.1",    "192.0.2.1",
                            "192.168.1.1",     "198.19.255.255",  "198.51.100.7", "203.0.113.9",
                            "239.1.1.1",       "255.255.255.255", "::",           "::1",
                            "::ffff:10.0.0.1", "64:ff9b::a00:1",  "2001:db8::1",  "2002:a00:1::",
                            "fd00::1",         "fe80::1",         "ff02::1"})
    EXPECT_TRUE(is_special_use(*IpAddress::parse(inside))) << inside;
  for (const auto outside :
       {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.32.0.0",
        "192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1"})
    EXPECT_FALSE(is_special_use(*IpAddress::parse(outside))) << outside;
}

TEST(NeverByName, IsTheHostsOwnSideOfSpecialUse) {
  for (const auto never : {"127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.251",
                           "255.255.255.255", "::1", "fe80::1"})
    EXPECT_TRUE(is_never_by_name(*IpAddress::parse(never))) << never;
  for (const auto named : {"10.0.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1", "fd00::1"})
    EXPECT_FALSE(is_never_by_name(*IpAddress::parse(named))) << named;
}

}  // namespace
}  // namespace sandbox
