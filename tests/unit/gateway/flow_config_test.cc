#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gateway/config.h"

namespace sandbox::gateway {
namespace {

using nlohmann::json;

json valid() {
  return {{"wire", "stream"},
          {"mtu", 1500},
          {"guest_mac", "52:54:00:12:34:56"},
          {"gateway_mac", "52:55:c0:00:00:01"},
          {"guest_ip", "192.0.0.2"},
          {"gateway_ip", "192.0.0.1"},
          {"prefix", 29},
          {"allow", {"example.org", "*.example.net:443"}},
          {"deny", json::array()},
          {"resolvers", {"192.168.1.1"}}};
}

TEST(GatewayConfig, ReadsTheDocumentedExample) {
  const auto config = parse_config(valid().dump());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->wire, WireForm::kStream);
  EXPECT_EQ(config->link.mtu, 1500);
  EXPECT_EQ(config->link.guest_ip.text(), "192.0.0.2");
  EXPECT_EQ(config->link.guest_mac.text(), "52:54:00:12:34:56");
  EXPECT_EQ(config->policy.allow_rules().size(), 2U);
  EXPECT_EQ(config->resolvers, std::vector<std::string>{"192.168.1.1"});
}

TEST(GatewayConfig, EveryMissingKeyIsNamed) {
  const json whole = valid();
  for (const auto& [key, unused] : whole.items()) {
    json part = whole;
    part.erase(key);
    const auto config = parse_config(part.dump());
    ASSERT_FALSE(config) << key;
    EXPECT_NE(config.error().message.find("'" + key + "'"), std::string::npos)
        << config.error().message;
  }
}

struct Wrong {
  const char* key;
  json value;
};

TEST(GatewayConfig, WrongValuesAreErrors) {
  const Wrong cases[] = {
      {"wire", "pipe"},
      {"wire", 1},
      {"mtu", 575},
      {"mtu", 65521},
      {"mtu", -1},
      {"mtu", "1500"},
      {"guest_mac", "52:54:00"},
      {"guest_mac", "01:54:00:12:34:56"},
      {"guest_ip", "192.0.0.02"},
      {"guest_ip", "192.0.0.1"},
      {"guest_ip", "192.0.0.9"},
      {"prefix", 31},
      {"allow", "example.org"},
      {"allow", {1}},
      {"deny", {"a b"}},
      {"surplus", true},
  };
  for (const auto& c : cases) {
    json config = valid();
    config[c.key] = c.value;
    EXPECT_FALSE(parse_config(config.dump())) << c.key << " " << c.value;
  }
  EXPECT_FALSE(parse_config("[]"));
  EXPECT_FALSE(parse_config("{"));
  EXPECT_FALSE(parse_config(std::string(100'000, '[')));
}

json proxy() {
  return {{"host", "proxy.example.org"},
          {"port", 3128},
          {"addresses", {"45.80.0.3", "2001:db8::3"}},
          {"authorization", "Basic dTpw"},
          {"no_proxy", "localhost,.example.net"}};
}

TEST(GatewayConfig, AnUpstreamProxyMayBeThere) {
  EXPECT_FALSE(parse_config(valid().dump())->proxy);
  json with = valid();
  with["upstream_proxy"] = proxy();
  const auto config = parse_config(with.dump());
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_TRUE(config->proxy);
  EXPECT_EQ(config->proxy->text(), "proxy.example.org:3128");
  EXPECT_EQ(config->proxy->addresses.size(), 2U);
  EXPECT_EQ(config->proxy->authorization, "Basic dTpw");
  EXPECT_TRUE(config->proxy->bypass.matches(*policy::HostName::parse("a.example.net")));
}

TEST(GatewayConfig, AWrongUpstreamProxyIsAnError) {
  const Wrong cases[] = {
      {"host", 1},      {"port", 0},         {"port", 65536},
      {"addresses", 1}, {"addresses", {""}}, {"authorization", "Basic x\r\nHost: y"},
      {"no_proxy", 7},  {"surplus", true},
  };
  for (const auto& c : cases) {
    json config = valid();
    config["upstream_proxy"] = proxy();
    config["upstream_proxy"][c.key] = c.value;
    EXPECT_FALSE(parse_config(config.dump())) << c.key << " " << c.value;
  }
  json config = valid();
  config["upstream_proxy"] = "http://proxy:3128";
  EXPECT_FALSE(parse_config(config.dump()));
}

TEST(GatewayControl, ReadsItsMessages) {
  EXPECT_TRUE(std::holds_alternative<control::Stats>(*parse_control(R"({"op":"stats"})")));
  const auto resolvers = parse_control(R"({"op":"resolvers","resolvers":["1.1.1.1"]})");
  EXPECT_EQ(std::get<control::Resolvers>(*resolvers).servers.size(), 1U);
  const auto policy = parse_control(R"({"op":"policy","allow":["example.org"],"deny":[]})");
  EXPECT_EQ(std::get<control::ReplacePolicy>(*policy).policy.allow_rules().size(), 1U);
  const auto publish = parse_control(R"({"op":"publish","id":7,"port":80})");
  EXPECT_EQ(std::get<control::Publish>(*publish).id, 7U);
  EXPECT_EQ(std::get<control::Publish>(*publish).port, 80);
  EXPECT_EQ(std::get<control::Unpublish>(*parse_control(R"({"op":"unpublish","id":7})")).id, 7U);
  EXPECT_TRUE(std::get<control::Ask>(*parse_control(R"({"op":"ask","on":true})")).on);
  const auto answer = parse_control(R"({"op":"answer","id":7,"allow":true})");
  EXPECT_TRUE(std::get<control::Answer>(*answer).allow);
}

TEST(GatewayControl, AQuestionIsToldWithTheRuleThatWouldAnswerIt) {
  const auto rule = *policy::HostPattern::parse("a.example.org:80");
  EXPECT_EQ(json::parse(asked_message({7, rule, "connect to it"})),
            (json{{"asked", 7}, {"rule", "a.example.org:80"}, {"text", "connect to it"}}));
  EXPECT_EQ(over_message(7), R"({"over":7})");
}

TEST(GatewayControl, RefusesWhatItDoesNotKnow) {
  for (const char* text :
       {R"({"op":"reboot"})", R"({"op":"stats","x":1})",
        R"({"op":"policy","allow":["a b"],"deny":[]})", R"({"op":"resolvers"})", R"({})", "", "7",
        R"({"op":"publish","port":80})", R"({"op":"unpublish","port":80})",
        R"({"op":"ask","on":1})", R"({"op":"answer","id":7})"})
    EXPECT_FALSE(parse_control(text)) << text;
}

TEST(GatewayControl, ErrorsAreJsonWhateverTheyQuote) {
  const auto message = error_message({Code::kIo, "bytes \xff\" here", "do this"});
  const json parsed = json::parse(message);
  EXPECT_EQ(parsed["hint"], "do this");
  EXPECT_TRUE(parsed.contains("error"));
}

}  // namespace
}  // namespace sandbox::gateway
