#include "guest/accounts.h"

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace sandbox::guest {
namespace {

constexpr size_t kMaxGroups = 64;

std::optional<uint32_t> parse_id(std::string_view text) {
  const std::optional<uint64_t> value = parse_decimal(text);
  // The largest value means "no change" to setresuid(2).
  if (!value || *value >= std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*value);
}

std::optional<PasswdEntry> parse_passwd_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ':');
  if (fields.size() != 7 || fields[0].empty()) return std::nullopt;
  const auto uid = parse_id(fields[2]);
  const auto gid = parse_id(fields[3]);
  if (!uid || !gid) return std::nullopt;
  return PasswdEntry{std::string(fields[0]), *uid, *gid, std::string(fields[5]),
                     std::string(fields[6])};
}

struct GroupEntry {
  std::string_view name;
  uint32_t gid = 0;
  std::vector<std::string_view> members;
};

std::optional<GroupEntry> parse_group_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, ':');
  if (fields.size() != 4 || fields[0].empty()) return std::nullopt;
  const auto gid = parse_id(fields[2]);
  if (!gid) return std::nullopt;
  return GroupEntry{fields[0], *gid, split(fields[3], ',')};
}

// The first line that `parse` accepts and `wanted` likes.
template <class Parse, class Wanted>
auto find_line(std::string_view text, Parse parse, Wanted wanted) -> decltype(parse(text)) {
  for (const std::string_view line : split(text, '\n')) {
    auto entry = parse(line);
    if (entry && wanted(*entry)) return entry;
  }
  return std::nullopt;
}

std::string with_line(std::string_view text, std::string_view line) {
  std::string out(text);
  if (!out.empty() && out.back() != '\n') out += '\n';
  out += line;
  out += '\n';
  return out;
}

// A name that nobody has: the wanted one, or that with the number behind it.
std::string free_name(std::string_view wanted, uint32_t id, bool taken) {
  return taken ? std::string(wanted) + std::to_string(id) : std::string(wanted);
}

Result<uint32_t> resolve_group(std::string_view text, std::string_view group) {
  if (const auto gid = find_group(group, text)) return *gid;
  if (const auto gid = parse_id(text)) return *gid;
  return fail(Code::kNotFound, "no group '{}' in the image", escape_terminal(text));
}

}  // namespace

std::optional<PasswdEntry> find_user(std::string_view passwd, std::string_view name) {
  return find_line(passwd, parse_passwd_line,
                   [&](const PasswdEntry& entry) { return entry.name == name; });
}

std::optional<PasswdEntry> find_user(std::string_view passwd, uint32_t uid) {
  return find_line(passwd, parse_passwd_line,
                   [&](const PasswdEntry& entry) { return entry.uid == uid; });
}

std::optional<uint32_t> find_group(std::string_view group, std::string_view name) {
  const auto entry = find_line(group, parse_group_line,
                               [&](const GroupEntry& candidate) { return candidate.name == name; });
  if (!entry) return std::nullopt;
  return entry->gid;
}

std::vector<uint32_t> supplementary_groups(std::string_view group, std::string_view user,
                                           uint32_t primary) {
  std::vector<uint32_t> groups;
  for (const std::string_view line : split(group, '\n')) {
    const auto entry = parse_group_line(line);
    if (!entry || entry->gid == primary || groups.size() == kMaxGroups) continue;
    if (std::find(entry->members.begin(), entry->members.end(), user) != entry->members.end())
      groups.push_back(entry->gid);
  }
  return groups;
}

Result<Identity> resolve_user(std::string_view user, std::string_view passwd,
                              std::string_view group) {
  const size_t colon = user.find(':');
  const std::string_view who = user.substr(0, colon);
  const auto uid = parse_id(who);
  auto entry = find_user(passwd, who);
  if (!entry && uid) entry = find_user(passwd, *uid);
  if (!entry && !uid)
    return fail(Error{Code::kNotFound,
                      fmt::format("no user '{}' in the image", escape_terminal(who)),
                      "give a number, or a name that the image's /etc/passwd has"});
  Identity identity;
  if (entry) {
    identity = {entry->name, entry->uid, entry->gid, {}, entry->home};
    if (identity.home.empty()) identity.home = "/";
    identity.groups = supplementary_groups(group, entry->name, entry->gid);
  } else {
    identity.uid = *uid;
  }
  if (colon != std::string_view::npos) {
    ASSIGN(identity.gid, resolve_group(user.substr(colon + 1), group));
    identity.groups.clear();
  }
  return identity;
}

AccountEdit add_account(const channel::Account& account, std::string_view passwd,
                        std::string_view group, std::optional<std::string_view> shadow,
                        std::string_view shell) {
  AccountEdit edit;
  if (const auto existing = find_user(passwd, account.uid)) {
    edit.user = *existing;
    return edit;
  }
  const bool name_taken = find_user(passwd, account.name).has_value();
  edit.user = {free_name(account.name, account.uid, name_taken), account.uid, account.gid,
               account.home, std::string(shell)};
  edit.passwd = with_line(passwd, fmt::format("{}:x:{}:{}::{}:{}", edit.user.name, account.uid,
                                              account.gid, account.home, shell));
  const auto same_gid = find_line(
      group, parse_group_line, [&](const GroupEntry& entry) { return entry.gid == account.gid; });
  if (!same_gid) {
    const bool group_taken = find_group(group, account.name).has_value();
    edit.group = with_line(
        group,
        fmt::format("{}:x:{}:", free_name(account.name, account.gid, group_taken), account.gid));
  }
  // '*': no password fits, and yet the account is in order, which sudo's account check (PAM) asks
  // for.
  if (shadow)
    edit.shadow = with_line(*shadow, fmt::format("{}:*:19000:0:99999:7:::", edit.user.name));
  return edit;
}

}  // namespace sandbox::guest
