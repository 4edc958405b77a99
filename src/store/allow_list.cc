#include "store/allow_list.h"

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "policy/host_pattern.h"

namespace sandbox {

namespace {

constexpr size_t kMostBytes = 1U << 20;

Result<std::string> read_text(const Home& home) {
  auto text = read_file(allow_list_path(home), kMostBytes);
  if (!text && text.error().code == Code::kNotFound) return std::string();
  return text;
}

}  // namespace

std::string allow_list_path(const Home& home) {
  return home.root() + "/allow";
}

Result<std::vector<std::string>> read_allow_list(const Home& home) {
  ASSIGN(const std::string text, read_text(home));
  std::vector<std::string> out;
  size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    const std::string_view word = trim(line);
    if (word.empty() || word.front() == '#') continue;
    auto rule = policy::HostPattern::parse(word);
    if (!rule)
      return fail(std::move(rule).error().while_doing(
          fmt::format("{}, line {}", allow_list_path(home), number)));
    out.push_back(rule->text());
  }
  return out;
}

Result<bool> add_to_allow_list(const Home& home, std::string_view word) {
  ASSIGN(const policy::HostPattern pattern, policy::HostPattern::parse(word));
  const std::string rule = pattern.text();
  ASSIGN(const FileLock lock, FileLock::acquire(allow_list_path(home) + ".lock"));
  ASSIGN(const auto rules, read_allow_list(home));
  if (std::ranges::find(rules, rule) != rules.end()) return false;
  ASSIGN(std::string text, read_text(home));
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += rule + "\n";
  TRY(write_file_atomic(allow_list_path(home), text));
  return true;
}

}  // namespace sandbox
