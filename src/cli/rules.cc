#include "cli/rules.h"

#include "policy/policy.h"

namespace sandbox::cli {

// A rule for loopback is well-formed and can never help: 127.0.0.1 in the guest is the guest.
Status check_rules(const std::vector<std::string>& allow, const std::vector<std::string>& deny) {
  ASSIGN(const auto policy, policy::Policy::create(allow, deny));
  for (const policy::HostPattern& rule : policy.allow_rules()) {
    const auto address = rule.exact_address();
    if (!address || !Cidr::parse("127.0.0.0/8")->contains(*address)) continue;
    const std::string port = rule.port() ? std::to_string(*rule.port()) : "PORT";
    return fail(Error{
        Code::kInvalid,
        fmt::format("allow rule '{}': inside, {} is the sandbox itself", rule.text(),
                    address->text()),
        fmt::format(
            "a service of this machine: --allow host.internal:{0}, then http://host.internal:{0}/",
            port)});
  }
  return {};
}

}  // namespace sandbox::cli
