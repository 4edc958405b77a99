#pragma once
// What the terminator does, one behaviour a case, as packet scripts (script.h). The cases follow
// the paragraphs of RFC 9293, 5961 and 7323 and the ways terminators are known to fail; each topic
// has a file of them.

#include <gtest/gtest.h>

#include <cctype>
#include <ostream>
#include <string>
#include <string_view>

#include "unit/net/tcp/script.h"

namespace sandbox::tcp::testing {

struct Case {
  const char* name;
  std::string script;
};

inline void PrintTo(const Case& each, std::ostream* out) {
  *out << each.name;
}

// A connection the owner accepted, with a guest window of 64256 bytes.
inline constexpr std::string_view kEstablished = R"(
> S seq=0 mss=1460 scale=7 win=64240
< SA seq=0 ack=1 mss=1460 scale=7 win=65535
> A seq=1 ack=1 win=502
? events syn established
)";

class ScriptTest : public ::testing::TestWithParam<Case> {
 protected:
  static std::string run() { return Script().run(GetParam().script); }
  static std::string run_established() {
    Script script;
    const std::string wrong = script.run(kEstablished);
    return wrong.empty() ? script.run(GetParam().script) : "opening: " + wrong;
  }
};

inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

inline std::string repeated(int times, std::string_view steps) {
  std::string script;
  while (times-- > 0) script += steps;
  return script;
}

}  // namespace sandbox::tcp::testing
