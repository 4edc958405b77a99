// fuzz-libs: sandbox_policy
// Rules, names and check subjects as anyone may write them. What is accepted reads back as itself,
// and no question put to a policy made of it fails.

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"
#include "policy/policy.h"

namespace {

using namespace sandbox;
using namespace sandbox::policy;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_round_trip(std::string_view text) {
  const auto pattern = HostPattern::parse(text);
  if (!pattern) {
    for (const char c : pattern.error().message) require(static_cast<unsigned char>(c) >= 0x20);
    return;
  }
  const auto again = HostPattern::parse(pattern->text());
  require(again.has_value() && *again == *pattern && again->text() == pattern->text());
}

void check_name(std::string_view text) {
  const auto name = HostName::parse(text);
  if (!name) return;
  require(HostName::parse(name->text()) == *name);
  require(name->in_zone(*name));
  require(!is_numeric_spelling(name->text()) && !IpAddress::parse(name->text()));
  std::vector<ByteView> labels;
  for (const auto label : split(name->text(), '.')) labels.push_back(as_bytes(label));
  require(HostName::from_labels(labels) == *name);
}

// A deny of the very subject must win over everything.
void check_policy(const std::vector<std::string>& rules, const std::string& subject) {
  std::vector<std::string> good;
  for (const std::string& rule : rules)
    if (HostPattern::parse(rule)) good.push_back(rule);
  const auto open = Policy::create(good, {});
  require(open.has_value());
  const auto verdict = open->check(subject);
  const auto name = HostName::parse(subject);
  if (name) {
    const IpAddress address(Ipv4{0x5DB8D70E});
    const HostName names[] = {*name};
    const auto query = open->query(*name);
    (void)open->dial({Protocol::kTcp, address, 443, names});
    (void)open->may_vouch(*name, address, {});
    if (verdict) require(verdict->allow == query.allow);
  }
  const std::string denies[] = {subject};
  const auto closed = Policy::create(good, denies);
  if (closed && verdict) require(!closed->check(subject)->allow);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = split(text, '\n');
  for (const auto line : lines) {
    check_round_trip(line);
    check_name(line);
  }
  const std::vector<std::string> rules(lines.begin(), lines.end() - 1);
  check_policy(rules, std::string(lines.back()));
  return 0;
}
