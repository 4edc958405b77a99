#include "supervisor/control_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json_object.h"

namespace sandbox::control {

namespace {

using nlohmann::json;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

using ChoiceText = std::pair<Choice, std::string_view>;
constexpr std::array<ChoiceText, 3> kChoices = {
    {{Choice::kOnce, "once"}, {Choice::kSession, "session"}, {Choice::kDeny, "deny"}}};

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

uint16_t port_number(JsonObject& in, const char* key, uint16_t least) {
  return static_cast<uint16_t>(in.number(key, least, UINT16_MAX));
}

json to_json(const Port& port) {
  return {{"address", port.address.text()}, {"port", port.port}, {"guest", port.guest}};
}

Result<Port> port_from_json(const json& value) {
  JsonObject in(value);
  const auto address = IpAddress::parse(in.text("address"));
  const Port port{address.value_or(IpAddress()), port_number(in, "port", 1),
                  port_number(in, "guest", 1)};
  TRY(in.finish());
  if (!address) return fail(Code::kProtocol, "'address' is none");
  return port;
}

Result<Request> read_request(const json& value) {
  JsonObject in(value);
  const std::string op = in.text("op");
  Request out;
  if (op == "ports") {
    out = Ports{};
  } else if (op == "publish") {
    out = Publish{port_number(in, "guest", 1)};
  } else if (op == "unpublish") {
    out = Unpublish{in.text("address"), port_number(in, "port", 0), port_number(in, "guest", 1)};
  } else if (op == "policy") {
    out = AddRules{in.texts("allow"), in.texts("deny")};
  } else if (op == "questions") {
    out = Questions{};
  } else if (op == "answer") {
    const uint64_t id = in.number("id", 0, UINT64_MAX);
    const std::string word = in.text("choice");
    const auto choice = std::ranges::find(kChoices, word, &ChoiceText::second);
    if (choice == kChoices.end())
      return fail(Code::kInvalid, "'{}' is no answer: once, session or deny",
                  escape_terminal(word));
    out = Answer{id, choice->first};
  } else {
    return fail(Code::kInvalid, "operation '{}' is not known", escape_terminal(op));
  }
  TRY(in.finish());
  return out;
}

}  // namespace

std::string host_side(const Port& port) {
  return port.address.is_v4() ? fmt::format("{}:{}", port.address.text(), port.port)
                              : fmt::format("[{}]:{}", port.address.text(), port.port);
}

std::string text(const Port& port) {
  return fmt::format("{} -> {}", host_side(port), port.guest);
}

std::string encode(const Request& request) {
  return dump(std::visit(
      Overloaded{
          [](const Ports&) -> json {
            return {{"op", "ports"}};
          },
          [](const Publish& r) -> json {
            return {{"op", "publish"}, {"guest", r.guest}};
          },
          [](const Unpublish& r) -> json {
            return {
                {"op", "unpublish"}, {"address", r.address}, {"port", r.port}, {"guest", r.guest}};
          },
          [](const AddRules& r) -> json {
            return {{"op", "policy"}, {"allow", r.allow}, {"deny", r.deny}};
          },
          [](const Questions&) -> json {
            return {{"op", "questions"}};
          },
          [](const Answer& r) -> json {
            return {{"op", "answer"},
                    {"id", r.id},
                    {"choice", std::ranges::find(kChoices, r.choice, &ChoiceText::first)->second}};
          },
      },
      request));
}

Result<Request> parse_request(std::string_view text) {
  ASSIGN(const json value, parse_json_object(text));
  return read_request(value);
}

std::string encode(const Reply& reply) {
  json ports = json::array();
  for (const Port& port : reply.ports) ports.push_back(to_json(port));
  return dump({{"done", true}, {"ports", ports}, {"rules", reply.rules}});
}

std::string encode(const Error& error) {
  json out = {{"error", error.message}};
  if (!error.hint.empty()) out["hint"] = error.hint;
  return dump(out);
}

Result<Reply> parse_reply(std::string_view text) {
  ASSIGN(const json value, parse_json_object(text));
  if (const auto error = value.find("error"); error != value.end() && error->is_string()) {
    const auto hint = value.find("hint");
    return fail(Error{Code::kUnavailable, error->get<std::string>(),
                      hint != value.end() && hint->is_string() ? hint->get<std::string>() : ""});
  }
  if (value.value("done", json()) != true)
    return fail(Code::kProtocol, "the sandbox gave an answer that is none");
  Reply reply;
  for (const json& port : value.value("ports", json::array())) {
    if (!port.is_object()) return fail(Code::kProtocol, "'ports' is not a list of ports");
    ASSIGN(const Port read, port_from_json(port));
    reply.ports.push_back(read);
  }
  for (const json& rule : value.value("rules", json::array())) {
    if (!rule.is_string()) return fail(Code::kProtocol, "'rules' is not a list of texts");
    reply.rules.push_back(rule);
  }
  return reply;
}

std::string encode(const Event& event) {
  return dump(std::visit(Overloaded{
                             [](const Asked& e) -> json {
                               return {{"asked", e.id}, {"rule", e.rule}, {"text", e.text}};
                             },
                             [](const Over& e) -> json {
                               return {{"over", e.id}};
                             },
                         },
                         event));
}

Result<std::optional<Event>> parse_event(std::string_view text) {
  ASSIGN(const json value, parse_json_object(text));
  JsonObject in(value);
  std::optional<Event> out;
  if (value.contains("asked"))
    out = Asked{in.number("asked", 0, UINT64_MAX), in.text("rule"), in.text("text")};
  else if (value.contains("over"))
    out = Over{in.number("over", 0, UINT64_MAX)};
  else
    return out;
  TRY(in.finish());
  return out;
}

}  // namespace sandbox::control
