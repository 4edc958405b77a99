// sandbox: the command line. Finds the command by its name and hands it the remaining words.

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "base/log.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/output.h"

namespace sandbox::cli {

namespace {

void print_overview() {
  fmt::print(
      R"(Run a coding agent, or any command, in its own microVM that reaches only what you allow.

  sandbox run builtin -- sh -c 'id; uname -r'        a command in a throwaway machine, no network
  sandbox run --allow example.org builtin -- curl https://example.org
  sandbox run debian:bookworm-slim                   an image from a registry, its own command
  sandbox policy check --allow '*.example.org' www.example.org
  sandbox doctor                                     is this machine ready, and what would fix it

Commands:
)");
  for (const Command* command : commands())
    fmt::print("  {:<16} {}\n", command->name, command->summary);
  fmt::print("\nsandbox COMMAND --help shows examples and every flag.\n");
}

// The first word of a command that has two, such as "policy".
bool is_group(std::string_view word) {
  const std::string prefix = std::string(word) + " ";
  const auto all = commands();
  return std::any_of(all.begin(), all.end(),
                     [&](const Command* c) { return c->name.starts_with(prefix); });
}

int print_group(std::string_view group) {
  for (const Command* command : commands())
    if (command->name.starts_with(std::string(group) + " "))
      fmt::print("  sandbox {:<16} {}\n", command->name, command->summary);
  return kDone;
}

int unknown(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command* command : commands()) names.push_back(command->name);
  Error error{Code::kInvalid, fmt::format("'{}' is not a command", name),
              "sandbox --help lists them"};
  if (const auto close = suggest(name, names))
    error.hint = fmt::format("did you mean: sandbox {}", *close);
  return fail_with(error, kUsage);
}

bool is_help(std::string_view word) {
  return word == "--help" || word == "-h" || word == "help";
}

// Words after "--" belong to the command in the sandbox.
bool asks_for_help(const std::vector<std::string>& args) {
  for (const std::string& word : args) {
    if (word == "--") return false;
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

int dispatch(std::vector<std::string> args) {
  if (args.empty() || is_help(args[0])) {
    if (args.size() < 2) {
      print_overview();
      return args.empty() ? kUsage : kDone;
    }
    args.erase(args.begin());
    args.push_back("--help");
  }
  if (args[0] == "--version") args[0] = "version";
  std::string name = args[0];
  args.erase(args.begin());
  if (is_group(name)) {
    if (args.empty() || is_help(args[0])) return print_group(name);
    name += " " + args[0];
    args.erase(args.begin());
  }
  for (const Command* command : commands()) {
    if (command->name != name) continue;
    if (asks_for_help(args)) {
      fmt::print("{}", command->manual);
      return kDone;
    }
    return command->run(std::move(args));
  }
  return unknown(name);
}

}  // namespace

}  // namespace sandbox::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  sandbox::log::trace("started");
  return sandbox::cli::dispatch({argv + 1, argv + argc});
}
