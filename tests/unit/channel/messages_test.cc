#include "channel/messages.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace sandbox::channel {
namespace {

ResumeRequest sample_resume() {
  ResumeRequest m;
  m.entropy.fill(0x5a);
  m.wall_ns = 1'800'000'000'000'000'123;
  m.nonce = UINT64_MAX;
  m.hostname = "box";
  m.network = Network{{0x52, 0x54, 0, 1, 2, 3}, Ipv4{0xC0000002}, 29,
                      Ipv4{0xC0000001},         Ipv4{0xC0000001}, 65520};
  m.disk_bytes = 1ULL << 36U;
  m.shares = {{1, "/home/u/p", false, false}, {2, "/etc/ref\xff", true, true}};
  m.links = {{"/workspace", "/home/u/p"}};
  m.account = Account{};
  m.profile = Profile::kHardened;
  m.host_roots = "-----BEGIN CERTIFICATE-----\n";
  return m;
}

TEST(Messages, ResumeComesBackWhole) {
  const ResumeRequest sent = sample_resume();
  const auto got = decode_resume(encode(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(encode(*got), encode(sent));
  EXPECT_EQ(got->network->mtu, 65520U);
  EXPECT_EQ(got->shares[1].path, "/etc/ref\xff");
  EXPECT_TRUE(got->shares[1].single_file);
  EXPECT_EQ(got->account->home, "/home/agent");
  EXPECT_EQ(got->profile, Profile::kHardened);
}

TEST(Messages, ResumeWithoutItsOptionalPartsComesBackWhole) {
  ResumeRequest sent;
  sent.hostname = "x";
  const auto got = decode_resume(encode(sent));
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->network);
  EXPECT_FALSE(got->account);
}

TEST(Messages, ExecKeepsArbitraryBytes) {
  ExecRequest sent;
  sent.argv = {"printf", "\xff\xfe", ""};
  sent.env = {"A=\x01"};
  sent.cwd = "/w";
  sent.user = "a:b";
  sent.tty = true;
  sent.size = {1, 65535};
  const auto got = decode_exec(encode(sent));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->argv, sent.argv);
  EXPECT_EQ(got->env, sent.env);
  EXPECT_EQ(got->size.columns, 65535);
  EXPECT_EQ(encode(*got), encode(sent));
}

TEST(Messages, SmallOnesComeBack) {
  EXPECT_EQ(decode_hello(encode(Hello{9, "s", "k"}))->version, 9U);
  EXPECT_EQ(decode_ready(encode(Ready{5, {"w1", "w2"}}))->warnings.size(), 2U);
  EXPECT_EQ(decode_error(encode(ErrorReport{"no"}))->text, "no");
  EXPECT_EQ(decode_clock(encode(Clock{3}))->wall_ns, 3U);
  EXPECT_EQ(decode_shutdown(encode(Shutdown{250}))->grace_ms, 250U);
  const auto exit = decode_exit(encode(Exit{137, 9, "x"}));
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 137);
  EXPECT_EQ(exit->signal, 9);
}

// Every prefix and every message with a byte more is refused: nothing is optional and nothing is
// left over.
TEST(Messages, AreRefusedCutOrExtended) {
  const Bytes whole = encode(sample_resume());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(decode_resume(ByteView(whole).first(size))) << size;
  Bytes longer = whole;
  longer.push_back(0);
  EXPECT_FALSE(decode_resume(longer));
}

TEST(Messages, AreRefusedWithValuesThatMakeNoSense) {
  ExecRequest exec;
  EXPECT_FALSE(decode_exec(encode(exec))) << "no argv";
  exec.argv = {std::string("a\0b", 3)};
  EXPECT_FALSE(decode_exec(encode(exec))) << "zero byte";
  exec.argv = {"a"};
  exec.cwd = "relative";
  EXPECT_FALSE(decode_exec(encode(exec))) << "relative directory";

  ResumeRequest resume = sample_resume();
  resume.shares[0].path = "relative";
  EXPECT_FALSE(decode_resume(encode(resume))) << "relative share";
  resume = sample_resume();
  resume.shares[0].id = 0;
  EXPECT_FALSE(decode_resume(encode(resume))) << "share 0";
  resume = sample_resume();
  resume.network->mtu = 100;
  EXPECT_FALSE(decode_resume(encode(resume))) << "mtu";
  resume = sample_resume();
  resume.network->prefix = 33;
  EXPECT_FALSE(decode_resume(encode(resume))) << "prefix";
  resume = sample_resume();
  resume.profile = static_cast<Profile>(3);
  EXPECT_FALSE(decode_resume(encode(resume))) << "profile";
  resume = sample_resume();
  resume.account->uid = UINT32_MAX;
  EXPECT_FALSE(decode_resume(encode(resume))) << "uid -1";
}

TEST(Messages, AreRefusedWithKeysOutOfTurn) {
  EXPECT_TRUE(decode_clock(*from_hex("a10103")));
  EXPECT_FALSE(decode_clock(*from_hex("a10203"))) << "unknown key";
  EXPECT_FALSE(decode_clock(*from_hex("a201030103"))) << "repeated key";
  EXPECT_FALSE(decode_clock(*from_hex("a0"))) << "missing key";
}

TEST(Messages, ARequestThatFitsNoFrameIsAnErrorForTheCaller) {
  ExecRequest exec;
  exec.argv = {"a"};
  EXPECT_TRUE(check_size(encode(exec)));
  exec.argv.emplace_back(kMaxPayload, 'x');
  const Status refused = check_size(encode(exec));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kLimit);
}

}  // namespace
}  // namespace sandbox::channel
