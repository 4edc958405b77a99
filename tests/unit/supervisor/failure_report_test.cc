#include "supervisor/failure_report.h"

#include <gtest/gtest.h>

namespace sandbox {
namespace {

TEST(FailureReport, ArrivesAsItWasSaid) {
  const Error error{Code::kInternal, "it broke", "do this\nthen that"};
  const Error back = error_from_report(failure_report(error));
  EXPECT_EQ(back.message, error.message);
  EXPECT_EQ(back.hint, error.hint);
  EXPECT_EQ(error_from_report(failure_report({Code::kIo, "no hint"})).hint, "");
}

TEST(FailureReport, AMessageOfSeveralLinesDoesNotBecomeAHint) {
  const Error back = error_from_report(failure_report({Code::kIo, "qemu said: a\nb", "fix"}));
  EXPECT_EQ(back.message, "qemu said: a b");
  EXPECT_EQ(back.hint, "fix");
}

}  // namespace
}  // namespace sandbox
