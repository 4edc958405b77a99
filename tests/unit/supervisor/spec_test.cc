#include "supervisor/spec.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

SandboxSpec example() {
  SandboxSpec spec;
  spec.name = "web-1";
  spec.run_dir = "/home/u/.sandbox/run/web-1";
  spec.image = "docker.io/library/debian:bookworm-slim";
  spec.command = {"sh", "-c", "echo \"quoted\"\n"};
  spec.qemu = {"/usr/bin/qemu-system-x86_64", {"/lib", "/dev/null"}};
  spec.shape = {4096, 2, Accel::kTcg};
  spec.boot_key = "abc";
  spec.disk_bytes = uint64_t{10} << 30;
  spec.allow = {"*.example.org:443"};
  spec.deny = {"ads.example.org"};
  spec.shares = {{"/home/u/p", "/home/u/p", false, false}, {"/etc/hosts", "/h", true, true}};
  spec.workspace = "/home/u/p";
  spec.profile = channel::Profile::kHardened;
  spec.host_roots = "-----BEGIN CERTIFICATE-----\n";
  spec.proxy = ProxySpec{"proxy.test", 3128, {"45.80.0.3"}, "Basic eDp5", ".test"};
  return spec;
}

TEST(SandboxSpec, SurvivesTheWayToTheSupervisor) {
  const SandboxSpec spec = example();
  const auto back = spec_from_json(to_json(spec));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(spec));
  EXPECT_EQ(back->shares, spec.shares);
  EXPECT_EQ(back->proxy, spec.proxy);
  EXPECT_EQ(back->host_roots, spec.host_roots);
  EXPECT_EQ(back->command, spec.command);
  EXPECT_EQ(back->disk_bytes, spec.disk_bytes);
  EXPECT_EQ(back->profile, channel::Profile::kHardened);
}

TEST(SandboxSpec, RefusesWhatIsNotOne) {
  for (const auto bad : {"", "[]", "{}", "{\"name\": 3}"}) EXPECT_FALSE(spec_from_json(bad)) << bad;
  std::string text = to_json(example());
  text.replace(text.find("\"profile\":1"), 11, "\"profile\":9");
  EXPECT_FALSE(spec_from_json(text));
}

}  // namespace
}  // namespace sandbox
