#include "policy/bypass.h"

#include <gtest/gtest.h>

namespace sandbox::policy {
namespace {

struct Case {
  const char* list;
  const char* target;
  bool matches;
};

bool matches(const Case& c) {
  const BypassList list = BypassList::parse(c.list);
  if (const auto address = IpAddress::parse(c.target)) return list.matches(*address);
  return list.matches(*HostName::parse(c.target));
}

TEST(BypassList, ReadsNamesAsCurlDoes) {
  const Case cases[] = {
      {"", "example.org", false},
      {" , ,,", "example.org", false},
      {"example.org", "example.org", true},
      {"example.org", "www.example.org", true},
      {"example.org", "badexample.org", false},
      {"example.org", "example.org.test", false},
      {".example.org", "www.example.org", true},
      {".example.org", "example.org", true},
      {"example.org.", "www.example.org", true},
      {"EXAMPLE.org", "www.example.org", true},
      {"localhost,example.org", "www.example.org", true},
      {"localhost example.org", "www.example.org", true},
      {"localhost,\texample.org", "www.example.org", true},
      {"org", "example.org", true},
      {"*", "example.org", true},
      {"a.test,*", "example.org", true},
  };
  for (const Case& c : cases) EXPECT_EQ(matches(c), c.matches) << c.list << " / " << c.target;
}

TEST(BypassList, ReadsAddressesAndNetworks) {
  const Case cases[] = {
      {"192.0.2.7", "192.0.2.7", true},
      {"192.0.2.7", "192.0.2.70", false},
      {"10.0.0.0/8", "10.1.2.3", true},
      {"10.0.0.0/8", "11.1.2.3", false},
      {"10.1.2.3/8", "10.9.9.9", true},
      {"0.0.0.0/0", "10.9.9.9", true},
      {"0.0.0.0/0", "2001:db8::1", false},
      {"10.0.0.1/32", "10.0.0.1", true},
      {"2001:db8::1", "2001:db8::1", true},
      {"[2001:db8::1]", "2001:db8::1", true},
      {"2001:db8::/32", "2001:db8:7::1", true},
      {"2001:db8:1::7/32", "2001:db8:7::1", true},
      {"2001:db8::/32", "2001:db9::1", false},
      {"10.0.0.0/8", "::ffff:10.1.2.3", true},
      {"*", "10.1.2.3", true},
  };
  for (const Case& c : cases) EXPECT_EQ(matches(c), c.matches) << c.list << " / " << c.target;
}

TEST(BypassList, WhatItCannotReadGoesThroughTheProxy) {
  const Case cases[] = {
      {"example.org:443", "example.org", false},
      {"*.example.org", "www.example.org", false},
      {"**", "example.org", false},
      {"10.0.0.0/33", "10.0.0.1", false},
      {"10.0.0.0/", "10.0.0.1", false},
      {"10.0.0.0/-1", "10.0.0.1", false},
      {"10.0/8", "10.0.0.1", false},
      {"/8", "10.0.0.1", false},
      {"10.", "10.0.0.1", false},
      {"2001:db8::/129", "2001:db8::", false},
      {"..", "example.org", false},
      {"[::1", "::1", false},
  };
  for (const Case& c : cases) EXPECT_EQ(matches(c), c.matches) << c.list << " / " << c.target;
}

TEST(BypassList, ANameIsNoAddressAndAnAddressNoName) {
  EXPECT_FALSE(BypassList::parse("10.0.0.0/8").matches(*HostName::parse("ten.example.org")));
  EXPECT_FALSE(BypassList::parse("example.org").matches(*IpAddress::parse("10.0.0.1")));
}

TEST(BypassList, IsBounded) {
  std::string text;
  for (size_t i = 0; i < BypassList::kMaxEntries; ++i) text += "a.test,";
  EXPECT_TRUE(BypassList::parse(text).matches(*HostName::parse("a.test")));
  EXPECT_FALSE(BypassList::parse(text + "b.test").matches(*HostName::parse("b.test")));
}

}  // namespace
}  // namespace sandbox::policy
