#include "image/builtin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/process.h"

namespace sandbox {
namespace {

namespace fs = std::filesystem;

TEST(BuiltinImage, CredentialsOfTheHostsAptDoNotGetIn) {
  struct Case {
    const char* file;
    const char* before;
    const char* after;
  };
  const Case cases[] = {
      {"sources.list", "deb [trusted=yes] http://joe:se-cret@mirror.test/debian stable main\n",
       "deb [trusted=yes] http://mirror.test/debian stable main\n"},
      {"sources.list.d/a.list", "deb https://token@mirror.test:8443 stable main\n",
       "deb https://mirror.test:8443 stable main\n"},
      {"sources.list.d/b.sources", "URIs: http://a:b@one.test/x http://c:d@two.test/y\n",
       "URIs: http://one.test/x http://two.test/y\n"},
      {"apt.conf.d/99host", "Acquire::http::Proxy \"http://joe:secret@proxy.test:3128/\";\n",
       "Acquire::http::Proxy \"http://proxy.test:3128/\";\n"},
      {"sources.list.d/path.list", "deb http://mirror.test/an@at/in:the@path stable main\n",
       "deb http://mirror.test/an@at/in:the@path stable main\n"},
      {"trusted.gpg.d/key.gpg", "://not@text", "://not@text"},
  };
  std::string root = fs::temp_directory_path() / "sandbox-builtin-XXXXXX";
  ASSERT_NE(::mkdtemp(root.data()), nullptr);
  const std::string apt = root + "/etc/apt/";
  for (const char* folder : {"sources.list.d", "apt.conf.d", "trusted.gpg.d"})
    fs::create_directories(apt + folder);
  for (const Case& c : cases) ASSERT_TRUE(write_file_atomic(apt + c.file, c.before));
  const auto done = run_program({"sh", "-c", std::string(kRemoveCredentials), "sh", root});
  ASSERT_TRUE(done);
  EXPECT_EQ(done->exit_code, 0) << done->err;
  for (const Case& c : cases) {
    const auto content = read_file(apt + c.file, 4096);
    ASSERT_TRUE(content) << c.file;
    EXPECT_EQ(*content, c.after) << c.file;
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace sandbox
