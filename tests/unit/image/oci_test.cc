#include "image/oci.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

const std::string kA = "sha256:" + std::string(64, 'a');
const std::string kB = "sha256:" + std::string(64, 'b');

std::string manifest(const std::string& layers) {
  return R"({"schemaVersion":2,"config":{"mediaType":"x","digest":")" + kA +
         R"(","size":7},"layers":[)" + layers + "]}";
}

TEST(Manifest, NamesConfigurationAndLayersInOrder) {
  const auto parsed = parse_manifest(manifest(R"({"digest":")" + kB +
                                              R"(","size":5,"mediaType":"t","x":1},{"digest":")" +
                                              kA + R"(","size":6})"));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->config.digest.text(), kA);
  EXPECT_EQ(parsed->config.size, 7U);
  ASSERT_EQ(parsed->layers.size(), 2U);
  EXPECT_EQ(parsed->layers[0].digest.text(), kB);
  EXPECT_EQ(parsed->layers[0].media_type, "t");
  EXPECT_EQ(parsed->layers[1].size, 6U);
}

TEST(Manifest, RejectsWhatIsNotOne) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  const std::string many = [] {
    std::string out;
    for (size_t i = 0; i <= kMaxLayers; ++i)
      out += (i ? "," : "") + (R"({"size":1,"digest":")" + kA + "\"}");
    return out;
  }();
  for (const std::string& text :
       {std::string(""), std::string("[]"), std::string("{"), std::string("null"), deep,
        manifest("1"), manifest("{}"), manifest(R"({"digest":"sha256:00","size":1})"),
        manifest(R"({"digest":")" + kA + "\"}"), manifest(R"({"size":-1,"digest":")" + kA + "\"}"),
        manifest(R"({"size":1e400,"digest":")" + kA + "\"}"),
        manifest(R"({"size":1,"digest":"../../etc/passwd"})"), manifest(many),
        std::string(R"({"schemaVersion":1})"), std::string(R"({"schemaVersion":"2"})"),
        std::string(R"({"schemaVersion":2,"config":{},"layers":[]})"),
        std::string(kMaxImageJson + 1, ' ')})
    EXPECT_FALSE(parse_manifest(text)) << text.substr(0, 100);
}

TEST(ImageDescription, ReadsWhatAStartNeeds) {
  const auto parsed = parse_image_description(
      R"({"architecture":"amd64","os":"linux","config":{"Entrypoint":["/init","-x"],"Cmd":["sh"],"Env":["A=1","B="],
          "WorkingDir":"/srv","User":"app:staff"},"rootfs":{"type":"layers","diff_ids":[")" +
      kA + R"("]},"history":[]})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->config.entrypoint, (std::vector<std::string>{"/init", "-x"}));
  EXPECT_EQ(parsed->config.cmd, std::vector<std::string>{"sh"});
  EXPECT_EQ(parsed->config.env, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_EQ(parsed->config.workdir, "/srv");
  EXPECT_EQ(parsed->config.user, "app:staff");
  EXPECT_EQ(parsed->diff_ids.size(), 1U);
}

TEST(ImageDescription, NullMembersAreEmptyAsGoWritesThem) {
  const auto parsed = parse_image_description(
      R"({"architecture":"amd64","os":"linux","config":{"Entrypoint":null,"Cmd":null,"User":""},"rootfs":{"diff_ids":null}})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->config.cmd.empty());
  EXPECT_TRUE(parsed->diff_ids.empty());
}

TEST(ImageDescription, RejectsWrongTypesAndNulBytes) {
  for (const char* text :
       {R"({"os":"linux"})", R"({"rootfs":[]})", R"({"rootfs":{"diff_ids":"x"}})",
        R"({"rootfs":{"diff_ids":["x"]}})", R"({"rootfs":{"diff_ids":[]},"config":[]})",
        R"({"rootfs":{"diff_ids":[]},"config":{"Cmd":"sh"}})",
        R"({"rootfs":{"diff_ids":[]},"config":{"Cmd":[1]}})",
        R"({"rootfs":{"diff_ids":[]},"config":{"User":7}})",
        R"({"rootfs":{"diff_ids":[]},"config":{"Env":["A=\u0000"]}})",
        R"({"rootfs":{"diff_ids":[]},"os":1})"})
    EXPECT_FALSE(parse_image_description(text)) << text;
}

}  // namespace
}  // namespace sandbox
