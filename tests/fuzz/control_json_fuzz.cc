// fuzz-libs: sandbox_supervisor sandbox_gateway
// What is said on the control sockets: requests of the command line, answers and events of the
// gateway, orders to the gateway. What is accepted must be written and read again as the same.
#include <cstdlib>

#include "gateway/config.h"
#include "supervisor/control_messages.h"

using namespace sandbox;  // NOLINT: a fuzz target

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto request = control::parse_request(text)) {
    const std::string once = control::encode(*request);
    const auto again = control::parse_request(once);
    if (!again || control::encode(*again) != once) std::abort();
  }
  if (const auto event = control::parse_event(text); event && *event) {
    const std::string once = control::encode(**event);
    const auto again = control::parse_event(once);
    if (!again || !*again || control::encode(**again) != once) std::abort();
  }
  if (const auto reply = control::parse_reply(text)) {
    const std::string once = control::encode(*reply);
    const auto again = control::parse_reply(once);
    if (!again || control::encode(*again) != once) std::abort();
  }
  (void)gateway::parse_control(text);
  (void)gateway::parse_config(text);
  return 0;
}
