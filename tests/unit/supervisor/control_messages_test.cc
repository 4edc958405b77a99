#include "supervisor/control_messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sandbox::control {
namespace {

TEST(ControlMessages, EveryRequestReadsAsItWasWritten) {
  const auto again = [](const Request& request) {
    const auto read = parse_request(encode(request));
    EXPECT_TRUE(read) << read.error().message;
    return *read;
  };
  EXPECT_TRUE(std::holds_alternative<Ports>(again(Ports{})));
  EXPECT_EQ(std::get<Publish>(again(Publish{65535})).guest, 65535);
  const auto unpublish = std::get<Unpublish>(again(Unpublish{"::1", 8080, 80}));
  EXPECT_EQ(unpublish.address, "::1");
  EXPECT_EQ(unpublish.port, 8080);
  EXPECT_EQ(unpublish.guest, 80);
  const auto rules = std::get<AddRules>(again(AddRules{{"a.example.org"}, {"b.net", "c.net"}}));
  EXPECT_EQ(rules.allow.size(), 1U);
  EXPECT_EQ(rules.deny.back(), "c.net");
  EXPECT_TRUE(std::holds_alternative<Questions>(again(Questions{})));
  for (const Choice choice : {Choice::kOnce, Choice::kSession, Choice::kDeny})
    EXPECT_EQ(std::get<Answer>(again(Answer{7, choice})).choice, choice);
}

TEST(ControlMessages, WhatIsNoRequestIsRefused) {
  for (const char* text :
       {"", "7", "[]", "{", "{}", R"({"op":7})", R"({"op":"reboot"})", R"({"op":"ports","x":1})",
        R"({"op":"publish"})", R"({"op":"publish","guest":0})", R"({"op":"publish","guest":65536})",
        R"({"op":"publish","guest":"80"})", R"({"op":"publish","guest":-1})",
        R"({"op":"unpublish","guest":80})", R"({"op":"policy","allow":["a"]})",
        R"({"op":"policy","allow":[1],"deny":[]})", R"({"op":"answer","id":7})",
        R"({"op":"answer","id":7,"choice":"maybe"})"})
    EXPECT_FALSE(parse_request(text)) << text;
  EXPECT_FALSE(parse_request(std::string(100'000, '[')));
}

TEST(ControlMessages, AReplyReadsAsItWasWritten) {
  const Reply reply{{{*IpAddress::parse("127.0.0.1"), 8080, 80}, {*IpAddress::parse("::1"), 1, 2}},
                    {"*.example.org"}};
  const auto read = parse_reply(encode(reply));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->ports, reply.ports);
  EXPECT_EQ(read->rules, reply.rules);
  EXPECT_EQ(text(reply.ports[1]), "[::1]:1 -> 2");
}

TEST(ControlMessages, EventsAreTakenForNoAnswersAndAnswersForNoEvents) {
  const auto asked = parse_event(encode(Event{Asked{7, "a.example.org", "look up a.example.org"}}));
  ASSERT_TRUE(asked && *asked);
  EXPECT_EQ(std::get<Asked>(**asked).text, "look up a.example.org");
  const auto over = parse_event(encode(Event{Over{7}}));
  ASSERT_TRUE(over && *over);
  EXPECT_EQ(std::get<Over>(**over).id, 7U);
  EXPECT_FALSE(parse_event(encode(Reply{}))->has_value());
  for (const char* text : {"", "7", R"({"asked":7})", R"({"over":"7"})", R"({"over":7,"x":1})",
                           R"({"asked":7,"rule":1,"text":""})"})
    EXPECT_FALSE(parse_event(text)) << text;
}

TEST(ControlMessages, ARefusalIsAnErrorWithItsHint) {
  const auto read = parse_reply(encode(Error{Code::kLimit, "too \"many\"", "fewer"}));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "too \"many\"");
  EXPECT_EQ(read.error().hint, "fewer");
}

TEST(ControlMessages, AnAnswerThatIsNoneIsRefused) {
  for (const char* text :
       {"", "[]", "{}", R"({"done":false})", R"({"done":1})", R"({"done":true,"ports":[7]})",
        R"({"done":true,"ports":[{}]})", R"({"done":true,"rules":[1]})",
        R"({"done":true,"ports":[{"address":"x","port":1,"guest":1}]})"})
    EXPECT_FALSE(parse_reply(text)) << text;
}

}  // namespace
}  // namespace sandbox::control
