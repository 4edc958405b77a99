#pragma once
// Turns decisions into audit records. The one place that knows both shapes.

#include <optional>
#include <string_view>

#include "audit/record_sink.h"
#include "base/ip.h"
#include "gateway/gates.h"

namespace sandbox::gateway {

class Reporter {
 public:
  explicit Reporter(audit::RecordSink& sink) : sink_(sink) {}

  void dns(const Decision& decision, const std::optional<Ipv4>& address);
  void dial(policy::Protocol protocol, const IpAddress& address, uint16_t port,
            const Decision& decision);
  // Where no name was shown the record is of the connection: its proto is that of the flow.
  void stream(const Flow& flow, const Decision& decision);
  // The upstream proxy did not connect what the gates allowed.
  void proxy_failed(const Flow& flow, std::string_view why);
  // A flow that was allowed has ended; `how` for people: "finished", "refused by the host".
  void closed(const Flow& flow, audit::Traffic traffic, std::string_view how);
  // A limit of the gateway refused what the policy may well allow.
  void limit(policy::Protocol protocol, const IpAddress& address, uint16_t port,
             std::string_view which);
  void note(std::string_view text);

  [[nodiscard]] bool broken() const { return sink_.broken(); }
  [[nodiscard]] uint64_t lost() const { return sink_.lost(); }

 private:
  audit::RecordSink& sink_;
};

}  // namespace sandbox::gateway
