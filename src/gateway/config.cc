#include "gateway/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_object.h"
#include "base/text.h"

namespace sandbox::gateway {

namespace {

using nlohmann::json;

constexpr uint16_t kSmallestMtu = 576;  // RFC 791: what every host must take
constexpr uint16_t kLargestMtu = 65520;

bool same_network(const net::LinkConfig& link) {
  const uint32_t mask = ~uint32_t{0} << (32 - link.prefix);
  return (link.guest_ip.value & mask) == (link.gateway_ip.value & mask) &&
         link.guest_ip != link.gateway_ip;
}

Result<UpstreamProxy> read_proxy(const json& value) {
  if (!value.is_object()) return fail(Code::kInvalid, "'upstream_proxy' is not an object");
  JsonObject in(value);
  UpstreamProxy out;
  out.host = in.text("host");
  out.port = static_cast<uint16_t>(in.number("port", 1, 65535));
  out.authorization = in.text("authorization");
  const auto addresses = in.texts("addresses");
  out.bypass = policy::BypassList::parse(in.text("no_proxy"));
  TRY(in.finish());
  for (const std::string& text : addresses) {
    const auto address = IpAddress::parse(text);
    if (!address) return fail(Code::kInvalid, "'addresses' has one that is no address");
    out.addresses.push_back(*address);
  }
  // A line of its own would be another field of the request.
  if (std::ranges::any_of(out.authorization, [](unsigned char c) { return c < 0x20 || c > 0x7E; }))
    return fail(Code::kInvalid, "'authorization' is no value of a header");
  return out;
}

Result<GatewayConfig> read_config(const json& value) {
  JsonObject in(value);
  GatewayConfig out;
  const std::string wire = in.text("wire");
  out.link.mtu = static_cast<uint16_t>(in.number("mtu", kSmallestMtu, kLargestMtu));
  out.link.guest_mac = in.parsed<net::MacAddress>("guest_mac", "a MAC address");
  out.link.gateway_mac = in.parsed<net::MacAddress>("gateway_mac", "a MAC address");
  out.link.guest_ip = in.parsed<Ipv4>("guest_ip", "an IPv4 address");
  out.link.gateway_ip = in.parsed<Ipv4>("gateway_ip", "an IPv4 address");
  out.link.prefix = static_cast<uint8_t>(in.number("prefix", 8, 30));
  const auto allow = in.texts("allow");
  const auto deny = in.texts("deny");
  out.resolvers = in.texts("resolvers");
  const json* proxy = in.optional("upstream_proxy");
  TRY(in.finish());
  if (proxy != nullptr) {
    ASSIGN(out.proxy, read_proxy(*proxy));
  }
  if (wire != "stream" && wire != "tap")
    return fail(Code::kInvalid, "'wire' is neither stream nor tap");
  out.wire = wire == "tap" ? WireForm::kTap : WireForm::kStream;
  if (out.link.guest_mac.is_group() || out.link.gateway_mac.is_group())
    return fail(Code::kInvalid, "a MAC address of a group cannot be a machine's own");
  if (!same_network(out.link))
    return fail(Code::kInvalid, "'guest_ip' and 'gateway_ip' are not two addresses of one network");
  ASSIGN(out.policy, policy::Policy::create(allow, deny));
  return out;
}

Result<control::Message> read_control(const json& value) {
  JsonObject in(value);
  const std::string op = in.text("op");
  if (op == "stats") {
    TRY(in.finish());
    return control::Stats{};
  }
  if (op == "resolvers") {
    control::Resolvers out{in.texts("resolvers")};
    TRY(in.finish());
    return out;
  }
  if (op == "policy") {
    const auto allow = in.texts("allow");
    const auto deny = in.texts("deny");
    TRY(in.finish());
    ASSIGN(auto policy, policy::Policy::create(allow, deny));
    return control::ReplacePolicy{std::move(policy)};
  }
  if (op == "publish") {
    const control::Publish out{in.number("id", 0, UINT64_MAX),
                               static_cast<uint16_t>(in.number("port", 1, 65535))};
    TRY(in.finish());
    return out;
  }
  if (op == "ask") {
    const control::Ask out{in.flag("on")};
    TRY(in.finish());
    return out;
  }
  if (op == "answer") {
    const control::Answer out{in.number("id", 0, UINT64_MAX), in.flag("allow")};
    TRY(in.finish());
    return out;
  }
  if (op == "unpublish") {
    const control::Unpublish out{in.number("id", 0, UINT64_MAX)};
    TRY(in.finish());
    return out;
  }
  return fail(Code::kInvalid, "operation '{}' is not known", escape_terminal(op));
}

}  // namespace

Result<GatewayConfig> parse_config(std::string_view text) {
  ASSIGN(const json value, parse_json_object(text));
  auto config = read_config(value);
  if (!config) return fail(std::move(config).error().while_doing("gateway configuration"));
  return config;
}

Result<control::Message> parse_control(std::string_view text) {
  ASSIGN(const json value, parse_json_object(text));
  return read_control(value);
}

std::string ready_message() {
  return R"({"ready":true})";
}

std::string error_message(const Error& error) {
  json out = {{"error", error.message}};
  if (!error.hint.empty()) out["hint"] = error.hint;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string asked_message(const Questions::Question& question) {
  const json out = {
      {"asked", question.id}, {"rule", question.rule.text()}, {"text", question.text}};
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string over_message(uint64_t id) {
  return json{{"over", id}}.dump();
}

std::string done_message(const Status& status) {
  return status ? R"({"done":true})" : error_message(status.error());
}

}  // namespace sandbox::gateway
