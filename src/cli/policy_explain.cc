// sandbox policy explain: one decision of the log, why it was made, and what would change it.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "audit/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/live.h"
#include "cli/output.h"
#include "cli/words.h"
#include "policy/policy.h"
#include "store/run_record.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kManual = R"(sandbox policy explain NAME[:NUMBER]

Say why a decision was made, what would change it, and how much that would allow. The sandbox may still
run, or be gone.

  sandbox policy explain NAME                      its last denial
  sandbox policy explain NAME:12                   the decision that sandbox policy log NAME shows as #12
)";

Result<audit::LogEntry> find_decision(const std::string& run_dir, const DecisionId& id) {
  std::optional<audit::LogEntry> found;
  TRY(audit::read_log(run_dir + "/audit", {}, [&](const auto& entry) {
    const bool wanted =
        id.seq == 0 ? entry.record.verdict == audit::Outcome::kDeny : entry.seq == id.seq;
    if (wanted) found = entry;
    return id.seq == 0 || !found;
  }));
  if (found && found->record.kind == audit::Kind::kDecision) return *found;
  const std::string hint =
      fmt::format("sandbox policy log {} shows the numbers behind #", id.sandbox);
  if (id.seq == 0)
    return fail(Error{Code::kNotFound, fmt::format("'{}' was denied nothing", id.sandbox), hint});
  return fail(Error{Code::kNotFound,
                    fmt::format("#{} of '{}' is no decision that is on record", id.seq, id.sandbox),
                    hint});
}

void line(std::string_view head, std::string_view text) {
  if (!text.empty()) fmt::print("{:<9} {}\n", head, escape_terminal(text));
}

// Has a rule been added since, that answers otherwise?
void print_now(const std::string& run_dir, const std::string& rule) {
  const auto record = read_run_record_file(run_dir);
  if (!record) return;
  const auto policy = policy::Policy::create(record->allow, record->deny);
  if (!policy) return;
  const auto verdict = policy->check(rule);
  if (!verdict) return;
  if (verdict->allow) line("now:", fmt::format("allowed since, by the rule '{}'", verdict->rule));
  if (verdict->reason == policy::Reason::kDenyRule)
    line("now:", fmt::format("denied by the deny rule '{}' as well", verdict->rule));
}

Status print_explanation(const DecisionId& id) {
  ASSIGN(const Home home, Home::open());
  ASSIGN(const std::string dir, existing_run_dir(home, id.sandbox));
  ASSIGN(const audit::LogEntry entry, find_decision(dir, id));
  const Explanation said = explain(entry.record);
  fmt::print("{}\n", audit::log_line(entry));
  line("why:", said.why);
  if (!said.rule.empty()) {
    const std::string quoted =
        said.rule.find('*') == std::string::npos ? said.rule : "'" + said.rule + "'";
    if (is_running(home, id.sandbox))
      line("allow it:", fmt::format("sandbox policy allow {} {}", id.sandbox, quoted));
    line("at start:", fmt::format("--allow {}", quoted));
  }
  line(entry.record.verdict == audit::Outcome::kAllow ? "allows:" : "that is:", said.reach);
  line("note:", said.instead);
  if (!said.rule.empty()) print_now(dir, said.rule);
  return {};
}

int run(std::vector<std::string> words) {
  std::string word;
  CLI::App app;
  app.add_option("NAME", word)->required();
  if (const auto parsed = parse_words(app, "policy explain", std::move(words)); !parsed)
    return fail_with(parsed.error(), kUsage);
  const auto id = parse_decision_id(word);
  if (!id) return fail_with(id.error(), kUsage);
  if (const Status printed = print_explanation(*id); !printed)
    return fail_with(printed.error(), kFailed);
  return kDone;
}

}  // namespace

extern const Command kPolicyExplain;
const Command kPolicyExplain{"policy explain",
                             "say why a decision was made, and what would change it", kManual, run};

}  // namespace sandbox::cli
