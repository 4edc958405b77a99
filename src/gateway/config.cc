#include "gateway/config.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace sandbox::gateway {

namespace {

using nlohmann::json;

constexpr uint16_t kSmallestMtu = 576;  // RFC 791: what every host must take
constexpr uint16_t kLargestMtu = 65520;

// Reads members of one object and remembers the first thing that is wrong with it.
class Object {
 public:
  explicit Object(const json& value) : value_(value) {}

  std::string text(const char* key) {
    const json* v = find(key);
    if (v == nullptr) return {};
    if (!v->is_string()) return wrong(key, "is not a text"), std::string();
    return v->get<std::string>();
  }
  uint64_t number(const char* key, uint64_t low, uint64_t high) {
    const json* v = find(key);
    if (v == nullptr) return low;
    if (!v->is_number_unsigned() || *v < low || *v > high)
      return wrong(key, fmt::format("is not a number from {} to {}", low, high)), low;
    return v->get<uint64_t>();
  }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> out;
    const json* v = find(key);
    if (v == nullptr) return out;
    const bool good = v->is_array() && std::ranges::all_of(*v, &json::is_string);
    if (!good) return wrong(key, "is not a list of texts"), out;
    return v->get<std::vector<std::string>>();
  }
  template <class T>
  T parsed(const char* key, const char* what) {
    const auto out = T::parse(text(key));
    if (!out) wrong(key, fmt::format("is not {}", what));
    return out.value_or(T{});
  }
  // To be called last: everything asked for was there and right, and there was nothing else.
  Status finish() {
    for (const auto& [key, unused] : value_.items())
      if (std::ranges::find(known_, key) == known_.end()) wrong(key.c_str(), "is not known");
    if (!error_.empty()) return fail(Code::kInvalid, "{}", error_);
    return {};
  }

 private:
  const json* find(const char* key) {
    known_.emplace_back(key);
    const auto it = value_.find(key);
    if (it == value_.end()) {
      wrong(key, "is missing");
      return nullptr;
    }
    return &*it;
  }
  void wrong(const char* key, std::string_view what) {
    if (error_.empty()) error_ = fmt::format("'{}' {}", escape_terminal(key), what);
  }

  const json& value_;
  std::vector<std::string> known_;
  std::string error_;
};

Result<json> parse_object(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  if (!value.is_object()) return fail(Code::kInvalid, "not a JSON object");
  return value;
}

bool same_network(const net::LinkConfig& link) {
  const uint32_t mask = ~uint32_t{0} << (32 - link.prefix);
  return (link.guest_ip.value & mask) == (link.gateway_ip.value & mask) &&
         link.guest_ip != link.gateway_ip;
}

Result<GatewayConfig> read_config(const json& value) {
  Object in(value);
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
  TRY(in.finish());
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
  Object in(value);
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
  if (op == "publish" || op == "unpublish") {
    const auto port = static_cast<uint16_t>(in.number("port", 1, 65535));
    TRY(in.finish());
    if (op == "publish") return control::Publish{port};
    return control::Unpublish{port};
  }
  return fail(Code::kInvalid, "operation '{}' is not known", escape_terminal(op));
}

}  // namespace

Result<GatewayConfig> parse_config(std::string_view text) {
  ASSIGN(const json value, parse_object(text));
  auto config = read_config(value);
  if (!config) return fail(std::move(config).error().while_doing("gateway configuration"));
  return config;
}

Result<control::Message> parse_control(std::string_view text) {
  ASSIGN(const json value, parse_object(text));
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

std::string done_message(const Status& status) {
  return status ? R"({"done":true})" : error_message(status.error());
}

}  // namespace sandbox::gateway
