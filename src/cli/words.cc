#include "cli/words.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"

namespace sandbox::cli {

namespace {

Error unknown_word(const CLI::App& app, std::string_view command, std::string hint) {
  const std::vector<std::string> extra = app.remaining();
  const std::string word = extra.empty() ? "" : extra.front();
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) flags.push_back("--" + option->get_lnames().front());
  const auto close = suggest(word, {flags.begin(), flags.end()});
  const char* kind = word.starts_with('-') ? "unknown flag" : "unexpected word";
  return {Code::kInvalid, fmt::format("{}: {} '{}'", command, kind, word),
          close ? fmt::format("did you mean {}?", *close) : std::move(hint)};
}

}  // namespace

void add_repeatable(CLI::App& app, const std::string& flag, std::vector<std::string>& into) {
  app.add_option(flag, into)->expected(1)->take_all()->allow_extra_args(false);
}

Status parse_words(CLI::App& app, std::string_view command, std::vector<std::string> words) {
  const std::string hint = fmt::format("sandbox {} --help", command);
  app.set_help_flag();                       // --help was answered before the command was called
  std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
  try {
    app.parse(std::move(words));
  } catch (const CLI::ExtrasError&) {
    return fail(unknown_word(app, command, hint));
  } catch (const CLI::ParseError& error) {
    return fail(Error{Code::kInvalid, fmt::format("{}: {}", command, error.what()), hint});
  }
  return {};
}

}  // namespace sandbox::cli
