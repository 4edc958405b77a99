// sandbox policy allow, sandbox policy deny: more rules for a sandbox that runs.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/live.h"
#include "cli/output.h"
#include "cli/rules.h"
#include "cli/words.h"
#include "policy/policy.h"
#include "store/run_record.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kAllowManual = R"(sandbox policy allow NAME RULE...

Add allow rules to a running sandbox. They hold at once, all of them or none, and until it ends.

  sandbox policy allow NAME www.example.org:443
  sandbox policy allow NAME '*.example.org' host.internal:8080

RULE is as for run --allow. A deny rule still wins over it. What may be reached now is asked with
sandbox policy check --sandbox NAME HOST; every change is in sandbox policy log NAME.
)";

constexpr std::string_view kDenyManual = R"(sandbox policy deny NAME RULE...

Add deny rules to a running sandbox. They hold at once, all of them or none, and until it ends: what is open
and denied by them is cut off, everything else goes on. No rule takes a deny rule away.

  sandbox policy deny NAME www.example.org
  sandbox policy deny NAME '*.example.org' 192.0.2.0/24

RULE is as for run --deny. Every change is in sandbox policy log NAME.
)";

struct ChangeArgs {
  std::string name;
  std::vector<std::string> rules;
};

Result<ChangeArgs> parse_args(std::string_view command, std::vector<std::string> words) {
  ChangeArgs args;
  CLI::App app;
  app.add_option("NAME", args.name)->required();
  app.add_option("RULE", args.rules)->required();
  TRY(parse_words(app, command, std::move(words)));
  return args;
}

// An allow rule for one host that a deny rule still forbids is not what the user hoped for.
Status note_what_stays_denied(const Home& home, const ChangeArgs& args) {
  ASSIGN(const std::string dir, home.run_dir(args.name));
  ASSIGN(const RunRecord record, read_run_record_file(dir));
  ASSIGN(const auto policy, policy::Policy::create(record.allow, record.deny));
  for (const std::string& rule : args.rules) {
    const auto verdict = policy.check(rule);  // a zone or a network is no question, and passed over
    if (verdict && verdict->reason == policy::Reason::kDenyRule)
      print_note(fmt::format("{} stays denied, by the deny rule '{}'", rule, verdict->rule));
  }
  return {};
}

Status change(const ChangeArgs& args, bool allow) {
  ASSIGN(const Home home, Home::open());
  ASSIGN(LiveSandbox sandbox, LiveSandbox::connect(home, args.name));
  control::AddRules rules;
  (allow ? rules.allow : rules.deny) = args.rules;
  ASSIGN(const control::Reply reply, sandbox.ask(rules));
  for (const std::string& rule : reply.rules)
    fmt::print("{:<5}  {}\n", allow ? "allow" : "deny", rule);
  if (reply.rules.empty()) print_note("nothing changed: every one of these rules was in force");
  return allow ? note_what_stays_denied(home, args) : Status{};
}

int run(std::string_view command, std::vector<std::string> words, bool allow) {
  const auto args = parse_args(command, std::move(words));
  if (!args) return fail_with(args.error(), kUsage);
  const std::vector<std::string> none;
  const Status checked = allow ? check_rules(args->rules, none) : check_rules(none, args->rules);
  if (!checked) return fail_with(checked.error(), kUsage);
  if (const Status changed = change(*args, allow); !changed)
    return fail_with(changed.error(), kFailed);
  return kDone;
}

int run_allow(std::vector<std::string> words) {
  return run("policy allow", std::move(words), true);
}

int run_deny(std::vector<std::string> words) {
  return run("policy deny", std::move(words), false);
}

}  // namespace

extern const Command kPolicyAllow;
const Command kPolicyAllow{"policy allow", "allow more to a sandbox while it runs", kAllowManual,
                           run_allow};
extern const Command kPolicyDeny;
const Command kPolicyDeny{"policy deny", "deny more to a sandbox while it runs", kDenyManual,
                          run_deny};

}  // namespace sandbox::cli
