// sandbox policy log: the record of a sandbox, running or gone, for people or as it stands.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "audit/log.h"
#include "cli/commands.h"
#include "cli/live.h"
#include "cli/output.h"
#include "cli/words.h"
#include "store/home.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kManual = R"(sandbox policy log [FLAGS] NAME

Show what a sandbox was allowed and denied. It may still run, or be gone.

  sandbox policy log NAME
  sandbox policy log --denied --tail 20 NAME
  sandbox policy log --follow NAME                 until the sandbox ends
  sandbox policy log --json NAME | jq 'select(.verdict == "deny") | .names'

  --denied     denials only, and what tells of lost records
  --follow     go on with what is added
  --tail N     the last N only
  --json       the records as they stand, one JSON object per line

A line reads: time, verdict, protocol and destination, reason, [names resolved to the address], #NUMBER.
sandbox policy explain NAME:NUMBER says why, and what would change it.
)";

// More than the two files of a log hold.
constexpr size_t kMostTail = 1'000'000;

struct LogArgs {
  audit::LogFilter filter;
  bool follow = false;
  bool json = false;
  std::string name;
};

Result<LogArgs> parse_args(std::vector<std::string> words) {
  LogArgs args;
  CLI::App app;
  app.add_flag("--denied", args.filter.denied_only);
  app.add_flag("-f,--follow", args.follow);
  app.add_option("--tail", args.filter.tail)->check(CLI::Range(size_t{1}, kMostTail));
  app.add_flag("--json", args.json);
  app.add_option("NAME", args.name)->required();
  TRY(parse_words(app, "policy log", std::move(words)));
  return args;
}

// False when nobody reads any more.
bool print_entry(const audit::LogEntry& entry, bool json) {
  const std::string line = json ? entry.line : audit::log_line(entry);
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  return std::ferror(stdout) == 0;
}

Result<audit::LogSummary> show(const Home& home, const LogArgs& args) {
  ASSIGN(const std::string dir, existing_run_dir(home, args.name));
  const auto print = [&](const audit::LogEntry& entry) {
    const bool wanted = print_entry(entry, args.json);
    return wanted && (!args.follow || std::fflush(stdout) == 0);
  };
  if (!args.follow) return audit::read_log(dir + "/audit", args.filter, print);
  return audit::follow_log(dir + "/audit", args.filter, print,
                           [&] { return is_running(home, args.name); });
}

int run(std::vector<std::string> words) {
  const auto args = parse_args(std::move(words));
  if (!args) return fail_with(args.error(), kUsage);
  const auto home = Home::open();
  if (!home) return fail_with(home.error(), kFailed);
  const auto summary = show(*home, *args);
  if (!summary) return fail_with(summary.error(), kFailed);
  std::fflush(stdout);
  if (summary->damaged > 0)
    print_note(fmt::format("{} lines of the log are damaged and were left out", summary->damaged));
  if (!summary->ended && !is_running(*home, args->name))
    print_note("the log has no end: the sandbox was killed");
  if (summary->records == 0) print_note("nothing was recorded that matches");
  return kDone;
}

}  // namespace

extern const Command kPolicyLog;
const Command kPolicyLog{"policy log", "show what a sandbox was allowed and denied", kManual, run};

}  // namespace sandbox::cli
