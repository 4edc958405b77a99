// sandbox policy check: one question to the rules, answered by the matcher that the gateway uses.

#include "policy/policy.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/live.h"
#include "cli/output.h"
#include "cli/words.h"
#include "store/allow_list.h"
#include "store/home.h"
#include "store/run_record.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kManual = R"(sandbox policy check [FLAGS] HOST[:PORT]

Say whether rules allow a host, and which rule decides. The same code decides in the gateway.

  sandbox policy check --allow '*.example.org:443' www.example.org
  sandbox policy check --allow '*.example.org' --deny ads.example.org ads.example.org:443
  sandbox policy check --allow udp/ntp.example.org:123 udp/ntp.example.org:123
  sandbox policy check --allow '*.corp.example.com@10.0.0.0/8' git.corp.example.com@10.1.2.3:443
  sandbox policy check --sandbox NAME www.example.org      the rules of a sandbox, as they are now

  --allow RULE     as for run; repeatable
  --deny RULE      as for run; repeatable
  --sandbox NAME   add the rules of that sandbox, running (with what was changed since) or gone

Without --sandbox the rules of ~/.sandbox/allow, which every run starts with, are asked as well.
Without a port the question is whether the host can be reached on any port at all. udp/ or icmp/ before
the host asks for UDP or ping; @ADDRESS after it tells where the name resolves.

Exit status: 0 allowed, 1 denied, 2 a rule or the host is malformed.
)";

struct CheckArgs {
  std::vector<std::string> allow;
  std::vector<std::string> deny;
  std::string sandbox;
  std::string subject;
};

Result<CheckArgs> parse_args(std::vector<std::string> words) {
  CheckArgs args;
  CLI::App app;
  add_repeatable(app, "--allow", args.allow);
  add_repeatable(app, "--deny", args.deny);
  app.add_option("--sandbox", args.sandbox);
  app.add_option("HOST", args.subject)->required();
  TRY(parse_words(app, "policy check", std::move(words)));
  return args;
}

Status add_rules_of(const std::string& sandbox, CheckArgs& args) {
  ASSIGN(const Home home, Home::open());
  ASSIGN(const std::string dir, existing_run_dir(home, sandbox));
  ASSIGN(const RunRecord record, read_run_record_file(dir));
  args.allow.insert(args.allow.end(), record.allow.begin(), record.allow.end());
  args.deny.insert(args.deny.end(), record.deny.begin(), record.deny.end());
  return {};
}

// What a run would start with.
Status add_allow_list(CheckArgs& args) {
  ASSIGN(const Home home, Home::open());
  ASSIGN(const std::vector<std::string> always, read_allow_list(home));
  args.allow.insert(args.allow.begin(), always.begin(), always.end());
  return {};
}

std::string because(const policy::Verdict& verdict) {
  if (verdict.allow) return fmt::format("matched allow '{}'", verdict.rule);
  if (verdict.reason == policy::Reason::kDenyRule)
    return fmt::format("matched deny '{}'", verdict.rule);
  if (verdict.reason == policy::Reason::kQuic)
    return "UDP 443 is never allowed, so that clients fall back from QUIC to TCP";
  return verdict.detail.empty() ? "no allow rule matched" : verdict.detail;
}

int run(std::vector<std::string> words) {
  auto args = parse_args(std::move(words));
  if (!args) return fail_with(args.error(), kUsage);
  if (args->sandbox.empty())
    if (const auto added = add_allow_list(*args); !added) return fail_with(added.error(), kUsage);
  if (!args->sandbox.empty())
    if (const auto added = add_rules_of(args->sandbox, *args); !added)
      return fail_with(added.error(), kFailed);
  const auto rules = policy::Policy::create(args->allow, args->deny);
  if (!rules) return fail_with(rules.error(), kUsage);
  const auto verdict = rules->check(args->subject);
  if (!verdict) return fail_with(verdict.error(), kUsage);
  fmt::print("{:<5}  {}  ({})\n", verdict->allow ? "allow" : "deny", args->subject,
             because(*verdict));
  return verdict->allow ? kDone : kFailed;
}

}  // namespace

extern const Command kPolicyCheck;
const Command kPolicyCheck{"policy check", "say whether rules allow a host, and which rule decides",
                           kManual, run};

}  // namespace sandbox::cli
