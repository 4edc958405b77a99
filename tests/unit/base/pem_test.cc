#include "base/pem.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

const std::string kA = "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n";
const std::string kB = "-----BEGIN CERTIFICATE-----\nQkJC\n-----END CERTIFICATE-----\n";

TEST(Pem, FindsTheBlocksOfABundle) {
  EXPECT_EQ(pem_certificates(""), std::vector<std::string>{});
  EXPECT_EQ(pem_certificates("# a comment\n" + kA + "\nCN=b\n" + kB), (std::vector{kA, kB}));
  EXPECT_EQ(pem_certificates(kA.substr(0, kA.size() - 1)), std::vector{kA});
}

TEST(Pem, EqualCertificatesAreEqualStrings) {
  const std::string line(64, 'A');
  const std::string wanted =
      "-----BEGIN CERTIFICATE-----\n" + line + "\nBBBB\n-----END CERTIFICATE-----\n";
  for (const std::string& body :
       {"\n" + line + "BBBB\n", "\r\n" + line + "\r\nBBBB\r\n", "\n" + line + " \n BB\nBB\n"})
    EXPECT_EQ(pem_certificates("-----BEGIN CERTIFICATE-----" + body + "-----END CERTIFICATE-----"),
              std::vector{wanted});
}

TEST(Pem, PassesOverWhatIsNone) {
  for (const char* text :
       {"-----BEGIN PRIVATE KEY-----\nQUFB\n-----END PRIVATE KEY-----\n",
        "-----BEGIN TRUSTED CERTIFICATE-----\nQUFB\n-----END TRUSTED CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nQUF\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nQU\x01"
        "B\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nQUFB\n"}) {
    EXPECT_EQ(pem_certificates(text), std::vector<std::string>{}) << text;
    EXPECT_EQ(pem_certificates(text + kA), std::vector{kA}) << text;
  }
}

}  // namespace
}  // namespace sandbox
