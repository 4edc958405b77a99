#include "image/reference.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace sandbox {
namespace {

constexpr char kHash[] = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

TEST(Reference, IsCompletedAsDockerDoes) {
  const std::pair<std::string, std::string> kCases[] = {
      {"debian", "docker.io/library/debian:latest"},
      {"debian:bookworm-slim", "docker.io/library/debian:bookworm-slim"},
      {"org/tool", "docker.io/org/tool:latest"},
      {"index.docker.io/org/tool", "docker.io/org/tool:latest"},
      {"docker.io/debian", "docker.io/library/debian:latest"},
      {"ghcr.io/org/a/b:1.2", "ghcr.io/org/a/b:1.2"},
      {"localhost/x", "localhost/x:latest"},
      {"localhost:5000/x:y", "localhost:5000/x:y"},
      {"[::1]:5000/x", "[::1]:5000/x:latest"},
      {std::string("debian@") + kHash, std::string("docker.io/library/debian@") + kHash},
      {std::string("debian:12@") + kHash, std::string("docker.io/library/debian@") + kHash},
      {"x/a__b.c-d--e/f", "docker.io/x/a__b.c-d--e/f:latest"},
      {"x:UPPER_tag.1-2", "docker.io/library/x:UPPER_tag.1-2"},
  };
  for (const auto& [text, expected] : kCases) {
    const auto parsed = ImageReference::parse(text);
    ASSERT_TRUE(parsed) << text << ": " << parsed.error().message;
    EXPECT_EQ(parsed->text(), expected);
    EXPECT_EQ(parsed->transport(), "docker://" + expected);
    EXPECT_EQ(ImageReference::parse(expected)->text(), expected) << "canonical form is not stable";
  }
}

TEST(Reference, OnlyThisMachineIsAskedByPlainHttp) {
  for (const char* text :
       {"localhost/x", "localhost:5000/x", "127.0.0.1:5000/x", "127.9.9.9/x", "[::1]:5000/x"})
    EXPECT_TRUE(ImageReference::parse(text)->loopback()) << text;
  for (const char* text :
       {"x", "ghcr.io/x", "localhost.example.org/x", "128.0.0.1:5000/x", "10.0.0.1:5000/x"})
    EXPECT_FALSE(ImageReference::parse(text)->loopback()) << text;
}

TEST(Reference, RejectsWhatDockerRejects) {
  for (const std::string text : {"",
                                 "Debian",
                                 "debian:",
                                 "debian:-x",
                                 "a//b",
                                 "/a",
                                 "a/",
                                 "-a",
                                 "a-",
                                 "a___b",
                                 "a..b",
                                 "a b",
                                 "docker://debian",
                                 "https://ghcr.io/x",
                                 "x@sha256:12",
                                 "x@md5:0123",
                                 "x@",
                                 "host:0/x",
                                 "host:99999/x",
                                 "host:5x/x",
                                 "ho_st.org/x",
                                 "[::1/x",
                                 "[zz]/x",
                                 "x:a:b",
                                 "--help",
                                 "x;rm",
                                 "x\ny",
                                 "x/../y",
                                 "."})
    EXPECT_FALSE(ImageReference::parse(text)) << text;
  EXPECT_FALSE(ImageReference::parse(std::string(2000, 'a')));
  EXPECT_FALSE(ImageReference::parse("x:" + std::string(129, 'a')));
  EXPECT_NE(ImageReference::parse("Debian").error().message.find("lower case"), std::string::npos);
}

TEST(Reference, LocalLayoutsAreMadeAbsolute) {
  std::filesystem::current_path(std::filesystem::temp_directory_path());
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(ImageReference::parse("oci:.:tag")->text(),
            "oci:" + (std::filesystem::path(here) / "").string() + ":tag");
  EXPECT_FALSE(ImageReference::parse("oci:/does/not/exist"));
  EXPECT_FALSE(ImageReference::parse("oci:"));
}

}  // namespace
}  // namespace sandbox
