#pragma once
// The image's user database, read and extended as text: /etc/passwd, /etc/group and /etc/shadow as
// passwd(5), group(5) and shadow(5) describe them. The files come from an image or from a running
// guest, so a line that is not one is skipped, never trusted.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "channel/messages.h"

namespace sandbox::guest {

struct PasswdEntry {
  std::string name;
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string home;
  std::string shell;
};

std::optional<PasswdEntry> find_user(std::string_view passwd, std::string_view name);
std::optional<PasswdEntry> find_user(std::string_view passwd, uint32_t uid);
std::optional<uint32_t> find_group(std::string_view group, std::string_view name);
// Groups that list `user` as a member, at most 64, without `primary`.
std::vector<uint32_t> supplementary_groups(std::string_view group, std::string_view user,
                                           uint32_t primary);

// Who a command runs as.
struct Identity {
  std::string name;  // empty: no such account
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
  std::string home = "/";
};
// `user` in the syntax of an image's USER: name, uid, name:group, uid:gid, any mix. An unknown
// number is a user without a name, an unknown name an error. A named group given explicitly
// replaces the supplementary ones, as docker does it.
Result<Identity> resolve_user(std::string_view user, std::string_view passwd,
                              std::string_view group);

// The user database with `account` in it. Files that need no change come back as nullopt.
struct AccountEdit {
  std::optional<std::string> passwd;
  std::optional<std::string> group;
  std::optional<std::string> shadow;
  PasswdEntry user;  // the account as it is now: the image's own user of that uid, or the new one
};
// `shadow` is nullopt where the image has no such file. `shell` is for a new account.
AccountEdit add_account(const channel::Account& account, std::string_view passwd,
                        std::string_view group, std::optional<std::string_view> shadow,
                        std::string_view shell);

}  // namespace sandbox::guest
