#include "cli/denials.h"

#include <fmt/format.h>

#include <algorithm>

#include "policy/host_name.h"
#include "policy/reason.h"

namespace sandbox::cli {

namespace {

constexpr size_t kShown = 3;

// The rule the user would have to write. An address that no name led to is better allowed by its
// name, so it proposes none.
std::string proposal(const audit::Record& record) {
  if (record.reason != policy::text(policy::Reason::kNoAllowRule)) return {};
  if (record.proto == "udp" || record.names.empty()) return {};
  const std::string& name = record.names.front();
  // A service of the host is named with its port.
  return name == policy::host_internal().text() ? name + ":PORT" : name;
}

// Where the reason alone does not say what happened.
std::string explanation_of(const audit::Record& record) {
  using policy::Reason;
  if (record.reason == policy::text(Reason::kDenyRule)) return record.rule;
  for (const auto reason : {Reason::kRebinding, Reason::kSniUnreadable, Reason::kEch,
                            Reason::kFlowLimit, Reason::kUpstreamProxy})
    if (record.reason == policy::text(reason)) return record.text;
  return {};
}

std::string target_of(const audit::Record& record) {
  std::string where = record.destination();
  // Behind a proxy the address only stands for its name.
  if (record.reason == policy::text(policy::Reason::kUpstreamProxy) && !record.names.empty())
    where = record.names.front();
  if (record.proto == "dns" || record.proto == "icmp" || record.port == 0) return where;
  return fmt::format("{} {}:{}", record.proto, where, record.port);
}

}  // namespace

void Denials::add(const audit::Record& record) {
  if (record.verdict != audit::Outcome::kDeny) return;
  Entry entry{target_of(record), record.reason, explanation_of(record), proposal(record)};
  if (entry.target.empty()) return;
  const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& other) {
    return other.target == entry.target && other.reason == entry.reason;
  });
  if (!known) entries_.push_back(std::move(entry));
}

std::string Denials::summary() const {
  std::string out = "denied: ";
  for (size_t i = 0; i < std::min(entries_.size(), kShown); ++i) {
    const Entry& entry = entries_[i];
    out += fmt::format("{}{} ({}{}{})", i == 0 ? "" : ", ", entry.target, entry.reason,
                       entry.text.empty() ? "" : ": ", entry.text);
  }
  if (entries_.size() > kShown) out += fmt::format(" and {} more", entries_.size() - kShown);
  return out;
}

std::string Denials::flag() const {
  for (const Entry& entry : entries_)
    if (!entry.allow.empty()) return fmt::format("--allow {}", entry.allow);
  return {};
}

}  // namespace sandbox::cli
