#include "gateway/reporter.h"

namespace sandbox::gateway {

namespace {

audit::Record base_record(const Decision& decision) {
  audit::Record record;
  record.verdict = decision.allow ? audit::Outcome::kAllow : audit::Outcome::kDeny;
  record.reason = policy::text(decision.reason);
  record.rule = decision.rule;
  for (const policy::HostName& name : decision.names) record.names.emplace_back(name.text());
  if (!decision.allow) record.text = decision.text;
  if (!decision.via.empty()) record.text = fmt::format("through the proxy {}", decision.via);
  if (!decision.allow && !decision.hint.empty())
    record.text += fmt::format("{}try {}", record.text.empty() ? "" : "; ", decision.hint);
  return record;
}

}  // namespace

void Reporter::dns(const Decision& decision, const std::optional<Ipv4>& address) {
  audit::Record record = base_record(decision);
  record.proto = "dns";
  if (address) record.address = *address;
  if (record.names.empty() && !decision.subject.empty()) record.names = {decision.subject};
  sink_.write(std::move(record));
}

void Reporter::dial(policy::Protocol protocol, const IpAddress& address, uint16_t port,
                    const Decision& decision) {
  audit::Record record = base_record(decision);
  record.proto = policy::text(protocol);
  record.address = address;
  record.port = port;
  sink_.write(std::move(record));
}

void Reporter::stream(const Flow& flow, const Decision& decision) {
  audit::Record record = base_record(decision);
  record.proto = decision.shown_by == ShownBy::kServerName   ? "tls"
                 : decision.shown_by == ShownBy::kHostHeader ? "http"
                                                             : policy::text(flow.protocol);
  record.address = flow.address;
  record.port = flow.port;
  if (decision.shown_by == ShownBy::kServerName) record.sni = decision.subject;
  if (decision.shown_by == ShownBy::kHostHeader) record.host = decision.subject;
  sink_.write(std::move(record));
}

void Reporter::proxy_failed(const Flow& flow, std::string_view why) {
  Decision decision;
  decision.reason = policy::Reason::kUpstreamProxy;
  for (const auto& pair : flow.hold) decision.names.push_back(pair->name);
  decision.text = why;
  dial(flow.protocol, flow.address, flow.port, decision);
}

void Reporter::closed(const Flow& flow, audit::Traffic traffic, std::string_view how) {
  audit::Record record;
  record.kind = audit::Kind::kClose;
  record.proto = policy::text(flow.protocol);
  record.address = flow.address;
  record.port = flow.port;
  record.rule = flow.rule;
  record.traffic = traffic;
  record.text = how;
  for (const auto& pair : flow.hold) record.names.emplace_back(pair->name.text());
  sink_.write(std::move(record));
}

void Reporter::limit(policy::Protocol protocol, const IpAddress& address, uint16_t port,
                     std::string_view which) {
  Decision decision;
  decision.reason = policy::Reason::kFlowLimit;
  decision.text = which;
  dial(protocol, address, port, decision);
}

void Reporter::note(std::string_view text) {
  audit::Record record;
  record.kind = audit::Kind::kNote;
  record.text = text;
  sink_.write(std::move(record));
}

}  // namespace sandbox::gateway
