#include "cli/proxy_args.h"

#include <gtest/gtest.h>

#include <map>

namespace sandbox::cli {
namespace {

// The shell of a case.
std::map<std::string, std::string>& variables() {
  static std::map<std::string, std::string> all;
  return all;
}
const char* outside(const char* name) {
  const auto it = variables().find(name);
  return it == variables().end() ? nullptr : it->second.c_str();
}

class ProxyArgsTest : public testing::Test {
 protected:
  void SetUp() override { variables().clear(); }

  // "proxy.test:3128 https_proxy", "none", or the error.
  static std::string chosen(const std::optional<std::string>& flag) {
    const auto choice = choose_proxy(flag, &outside);
    if (!choice) return "error: " + choice.error().message;
    return *choice ? (*choice)->text() + " " + (*choice)->from : "none";
  }
};

TEST_F(ProxyArgsTest, TheFlagIsAUrlOrNone) {
  EXPECT_EQ(chosen({}), "none");
  EXPECT_EQ(chosen("none"), "none");
  for (const char* url : {"http://proxy.test:3128", "http://proxy.test:3128/", "proxy.test:3128",
                          "HTTP://Proxy.TEST:3128", "http://u:p@proxy.test:3128"})
    EXPECT_EQ(chosen(url), "proxy.test:3128 --upstream-proxy") << url;
  EXPECT_EQ(chosen("http://45.80.0.3:8080"), "45.80.0.3:8080 --upstream-proxy");
  EXPECT_EQ(chosen("http://[2001:db8::3]:8080"), "[2001:db8::3]:8080 --upstream-proxy");
}

TEST_F(ProxyArgsTest, TheVariablesOfTheShellHaveAnOrder) {
  const char* const order[] = {"ALL_PROXY",  "all_proxy",   "HTTP_PROXY",
                               "http_proxy", "HTTPS_PROXY", "https_proxy"};
  for (const char* name : order) {
    variables()[name] = "http://" + std::string(name).substr(0, 3) + ".test:1";
    EXPECT_TRUE(chosen({}).ends_with(std::string(" ") + name)) << chosen({});
  }
  variables()["https_proxy"] = "";
  EXPECT_TRUE(chosen({}).ends_with(" HTTPS_PROXY"));
  EXPECT_EQ(chosen("none"), "none");
  EXPECT_EQ(chosen("http://flag.test:2"), "flag.test:2 --upstream-proxy");
}

TEST_F(ProxyArgsTest, NoProxyComesAlongInEitherCase) {
  variables()["NO_PROXY"] = "upper.test";
  EXPECT_EQ((*choose_proxy("proxy.test:1", &outside))->no_proxy, "upper.test");
  variables()["no_proxy"] = "lower.test";
  EXPECT_EQ((*choose_proxy("proxy.test:1", &outside))->no_proxy, "lower.test");
}

TEST_F(ProxyArgsTest, CredentialsAreDecodedAndNeverShown) {
  const auto choice = choose_proxy("http://us%20er:p%40s%3As@proxy.test:3128", &outside);
  ASSERT_TRUE(choice && *choice);
  EXPECT_EQ((*choice)->authorization, "Basic dXMgZXI6cEBzOnM=");  // "us er:p@s:s"
  EXPECT_EQ((*choose_proxy("http://user@proxy.test:3128", &outside))->authorization,
            "Basic dXNlcjo=");
  EXPECT_EQ((*choose_proxy("http://proxy.test:3128", &outside))->authorization, "");
  EXPECT_EQ((*choose_proxy("u:a://b@proxy.test:3128", &outside))->authorization,
            "Basic dTphOi8vYg==");  // "u:a://b"
  for (const char* url :
       {"http://u:secret@proxy.test", "http://u:secret@:1", "ftp://u:secret@p:1",
        "http://u:secret%zz@p.test:1", "http://u:secret%0d%0a@p.test:1",
        "http://u%3a:secret@p.test:1", "http://u:secret%4@p.test:1", "u:secret://b@p.test"}) {
    const std::string error = chosen(url);
    EXPECT_TRUE(error.starts_with("error: --upstream-proxy: ")) << url << " " << error;
    EXPECT_EQ(error.find("secret"), std::string::npos) << error;
  }
}

TEST_F(ProxyArgsTest, AMistakeNamesWhereItStandsAndWhatToWrite) {
  variables()["all_proxy"] = "socks5://proxy.test:1080";
  const auto choice = choose_proxy({}, &outside);
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().message,
            "all_proxy: a proxy that is spoken to in socks5 is not supported, only http://");
  EXPECT_NE(choice.error().hint.find("--upstream-proxy none"), std::string::npos);
  for (const char* url : {"", "http://", "proxy.test", "http://proxy.test:0", "proxy.test:65536",
                          "http://proxy.test:3128/path", "http://a b:1", "proxy.test:"})
    EXPECT_TRUE(chosen(url).starts_with("error: ")) << url;
}

TEST_F(ProxyArgsTest, AnAddressIsFoundWithoutAResolver) {
  const auto choice = choose_proxy("http://u:p@45.80.0.3:3128", &outside);
  const auto spec = locate_proxy(**choice);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(*spec, (ProxySpec{"45.80.0.3", 3128, {"45.80.0.3"}, "Basic dTpw", ""}));
  EXPECT_EQ(locate_proxy(**choose_proxy("[::1]:3128", &outside))->addresses,
            std::vector<std::string>{"::1"});
}

}  // namespace
}  // namespace sandbox::cli
