#pragma once
// What is said on the control socket of a running sandbox, run/NAME/control: one JSON object per
// message, a request from the command line, an answer from the supervisor. Both ends use this file.
//
//   {"op":"ports"}                                     {"done":true,"ports":[…]}
//   {"op":"publish","guest":80}  + a listening socket  {"done":true,"ports":[the new one]}
//   {"op":"unpublish","address":"","port":0,"guest":80}   {"done":true,"ports":[those that went]}
//   {"op":"policy","allow":["a.example.org"],"deny":[]}   {"done":true,"rules":[the new ones]}
//   {"op":"questions"}                                 {"done":true}, then on this connection
//                                                      {"asked":7,"rule":"…","text":"…"},
//                                                      {"over":7}
//   {"op":"answer","id":7,"choice":"once"}             {"done":true}; also session, deny
//
// A refusal is {"error":"sentence","hint":"what to do"} and has changed nothing.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ip.h"
#include "base/result.h"

namespace sandbox::control {

inline constexpr size_t kMaxMessage = 128 * 1024;

struct Port {
  IpAddress address;  // of this host
  uint16_t port = 0;
  uint16_t guest = 0;
  friend bool operator==(const Port&, const Port&) = default;
};
std::string host_side(const Port& port);  // "127.0.0.1:8080", "[::1]:8080"
std::string text(const Port& port);       // "127.0.0.1:8080 -> 80"

struct Ports {};
struct Publish {
  uint16_t guest = 0;
};
// Every port that leads to `guest` and, where they are given, has that address and port here.
struct Unpublish {
  std::string address;  // empty: any
  uint16_t port = 0;    // 0: any
  uint16_t guest = 0;
};
// Rules to be added to those in force; none is ever taken away.
struct AddRules {
  std::vector<std::string> allow;
  std::vector<std::string> deny;
};
// To be told what the sandbox wants that no rule is about, and to answer.
struct Questions {};
enum class Choice { kOnce, kSession, kDeny };
struct Answer {
  uint64_t id = 0;
  Choice choice = Choice::kDeny;
};
using Request = std::variant<Ports, Publish, Unpublish, AddRules, Questions, Answer>;

std::string encode(const Request& request);
Result<Request> parse_request(std::string_view text);

struct Reply {
  std::vector<Port> ports = {};
  std::vector<std::string> rules = {};
};
std::string encode(const Reply& reply);
std::string encode(const Error& error);
// The error that was answered is the error.
Result<Reply> parse_reply(std::string_view text);

// What comes unasked: from the gateway to the supervisor, and on to who wants to be told.
struct Asked {
  uint64_t id = 0;
  std::string rule;  // the allow rule that would answer it
  std::string text;  // "look up www.example.org"
};
struct Over {
  uint64_t id = 0;
};
using Event = std::variant<Asked, Over>;
std::string encode(const Event& event);
// nullopt: it is an answer. An event that is no good one is an error.
Result<std::optional<Event>> parse_event(std::string_view text);

}  // namespace sandbox::control
