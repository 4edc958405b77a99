#include "guest/accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::guest {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "# a comment\n"
    "broken:x:1\n"
    "huge:x:4294967295:5::/:/bin/sh\n"
    "negative:x:-1:5::/:/bin/sh\n"
    "node:x:1001:1001::/home/node:/bin/sh\n"
    "1234:x:77:78::/odd:/bin/sh";
constexpr std::string_view kGroup =
    "root:x:0:\n"
    "broken\n"
    "node:x:1001:\n"
    "docker:x:999:root,node\n"
    "nodes:x:500:nodex\n"
    "audio:x:29:node";

TEST(FindUser, FindsByNameAndByNumberAndSkipsWhatIsNoEntry) {
  EXPECT_EQ(find_user(kPasswd, "node")->uid, 1001U);
  EXPECT_EQ(find_user(kPasswd, 0U)->name, "root");
  EXPECT_EQ(find_user(kPasswd, "1234")->gid, 78U) << "last line without newline";
  for (const char* name : {"broken", "huge", "negative", "# a comment", ""})
    EXPECT_FALSE(find_user(kPasswd, std::string_view(name))) << name;
}

TEST(SupplementaryGroups, AreThoseThatNameTheUserWhole) {
  EXPECT_THAT(supplementary_groups(kGroup, "node", 1001), ElementsAre(999, 29));
  EXPECT_THAT(supplementary_groups(kGroup, "node", 29), ElementsAre(999)) << "not the primary";
  EXPECT_THAT(supplementary_groups(kGroup, "nobody", 1), IsEmpty());
}

TEST(SupplementaryGroups, AreBounded) {
  std::string group;
  for (int i = 0; i < 1000; ++i) group += "g:x:" + std::to_string(i) + ":u\n";
  EXPECT_EQ(supplementary_groups(group, "u", 5000).size(), 64U);
}

struct UserCase {
  const char* user;
  uint32_t uid;
  uint32_t gid;
  std::vector<uint32_t> groups;
  const char* home;
};

TEST(ResolveUser, ReadsEveryFormOfAnImagesUser) {
  const std::vector<UserCase> cases = {
      {"node", 1001, 1001, {999, 29}, "/home/node"},
      {"1001", 1001, 1001, {999, 29}, "/home/node"},
      {"node:audio", 1001, 29, {}, "/home/node"},
      {"node:7", 1001, 7, {}, "/home/node"},
      {"0", 0, 0, {999}, "/root"},
      {"4000", 4000, 0, {}, "/"},
      {"4000:4001", 4000, 4001, {}, "/"},
      {"1234", 77, 78, {}, "/odd"},
  };
  for (const UserCase& test : cases) {
    const auto identity = resolve_user(test.user, kPasswd, kGroup);
    ASSERT_TRUE(identity) << test.user;
    EXPECT_EQ(identity->uid, test.uid) << test.user;
    EXPECT_EQ(identity->gid, test.gid) << test.user;
    EXPECT_EQ(identity->groups, test.groups) << test.user;
    EXPECT_EQ(identity->home, test.home) << test.user;
  }
}

TEST(ResolveUser, RefusesWhoIsNotThere) {
  for (const char* user : {"nobody", "", "node:nogroup", "-1", "4294967295", "node:", ":5"})
    EXPECT_FALSE(resolve_user(user, kPasswd, kGroup)) << user;
}

TEST(AddAccount, LeavesAnImageAloneThatHasTheUid) {
  const auto edit =
      add_account({"agent", 1001, 1001, "/home/agent"}, kPasswd, kGroup, "", "/bin/sh");
  EXPECT_FALSE(edit.passwd);
  EXPECT_FALSE(edit.group);
  EXPECT_FALSE(edit.shadow);
  EXPECT_EQ(edit.user.name, "node");
  EXPECT_EQ(edit.user.home, "/home/node");
}

TEST(AddAccount, AppendsWholeLines) {
  const auto edit =
      add_account({}, "root:x:0:0::/root:/bin/sh", "root:x:0:\n", "root:*:1::::::", "/bin/bash");
  EXPECT_EQ(edit.passwd, "root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/bash\n");
  EXPECT_EQ(edit.group, "root:x:0:\nagent:x:1000:\n");
  EXPECT_EQ(edit.shadow, "root:*:1::::::\nagent:*:19000:0:99999:7:::\n");
}

TEST(AddAccount, WorksOnAnImageWithoutAUserDatabase) {
  const auto edit = add_account({}, "", "", std::nullopt, "/bin/sh");
  EXPECT_EQ(edit.passwd, "agent:x:1000:1000::/home/agent:/bin/sh\n");
  EXPECT_EQ(edit.group, "agent:x:1000:\n");
  EXPECT_FALSE(edit.shadow);
}

TEST(AddAccount, EvadesNamesThatAreTaken) {
  const auto edit = add_account({}, "agent:x:50:50::/:/bin/sh\n", "agent:x:50:\n", "", "/bin/sh");
  EXPECT_EQ(edit.user.name, "agent1000");
  EXPECT_NE(edit.group->find("agent1000:x:1000:"), std::string::npos);
}

TEST(AddAccount, SharesAGroupThatHasTheNumber) {
  const auto edit = add_account({}, "", "users:x:1000:\n", std::nullopt, "/bin/sh");
  EXPECT_FALSE(edit.group);
}

}  // namespace
}  // namespace sandbox::guest
