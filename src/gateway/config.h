#pragma once
// What the supervisor tells the gateway at its start, and the messages of the control descriptor.
// The contract is docs/processes.md. Unknown keys are errors.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "gateway/questions.h"
#include "gateway/upstream_proxy.h"
#include "net/link.h"
#include "policy/policy.h"

namespace sandbox::gateway {

enum class WireForm { kStream, kTap };

struct GatewayConfig {
  WireForm wire = WireForm::kStream;
  net::LinkConfig link;
  policy::Policy policy;
  std::vector<std::string> resolvers;
  std::optional<UpstreamProxy> proxy;
};

Result<GatewayConfig> parse_config(std::string_view json);

namespace control {
struct Resolvers {
  std::vector<std::string> servers;
};
struct ReplacePolicy {
  policy::Policy policy;
};
// A listening socket comes with the message: who connects to it is connected to `port` of the
// guest. The sender chooses `id`, since several sockets may lead to one port.
struct Publish {
  uint64_t id = 0;
  uint16_t port = 0;
};
struct Unpublish {
  uint64_t id = 0;
};
// Whether there is somebody to ask about what is refused for want of a rule; at first there is not.
struct Ask {
  bool on = false;
};
// To a question: yes for this once, or no.
struct Answer {
  uint64_t id = 0;
  bool allow = false;
};
struct Stats {};
using Message = std::variant<Resolvers, ReplacePolicy, Publish, Unpublish, Ask, Answer, Stats>;
}  // namespace control

Result<control::Message> parse_control(std::string_view json);

// Messages to the supervisor.
std::string ready_message();
std::string done_message(const Status& status);  // {"done":true} or {"error":…,"hint":…}
std::string error_message(const Error& error);
// {"asked":7,"rule":"www.example.org","text":"look up www.example.org"}, and later {"over":7}
std::string asked_message(const Questions::Question& question);
std::string over_message(uint64_t id);

}  // namespace sandbox::gateway
