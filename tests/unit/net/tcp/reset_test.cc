// How it ends without: RST, challenges and their ration (RFC 5961), and the abort of either side.

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kReset[] = {
    {"a RST at the expected number ends the flow", R"(
> R seq=1
? events closed:reset
< nothing
? flows 0
? deadline none
)"},
    {"a RST inside the window is challenged", R"(
> R seq=100
< A seq=1 ack=1
? state ESTABLISHED
)"},
    {"a RST outside the window is dropped", R"(
> R seq=5000000
< nothing
? state ESTABLISHED
)"},
    {"a SYN in an established flow is challenged", R"(
> S seq=70000
< A seq=1 ack=1
? state ESTABLISHED
)"},
    {"challenges are rationed", repeated(10, "> R seq=100\n< A seq=1 ack=1\n") + R"(
> R seq=100
< nothing
+ 1s
> R seq=100
< A seq=1 ack=1
)"},
    {"unread bytes are dropped when the guest resets", R"(
! hold
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
> R seq=101
? events readable closed:reset
? flows 0
? memory 0
)"},
    {"abort sends a RST at once", R"(
! write 100
< PA seq=1 ack=1 len=100
! abort
< RA seq=101 ack=1
? flows 0
? deadline none
)"},
    {"a RST after the window shrank has a number the guest believes", R"(
! write 2920
< A seq=1 ack=1 len=1460
< PA seq=1461 ack=1 len=1460
> A seq=1 ack=1 win=10
! abort
< RA seq=1281 ack=1
)"},
    {"a RST after a FIN counts the FIN", R"(
! write 10
< PA seq=1 ack=1 len=10
! close
< FA seq=11 ack=1
! abort
< RA seq=12 ack=1
)"},
    {"a host reset is passed on after the bytes before it", R"(
! write 100
< PA seq=1 ack=1 len=100
! flush
< nothing
> A seq=1 ack=101
< RA seq=101 ack=1
? flows 0
? events
)"},
    {"a host reset with nothing queued is passed on at once", R"(
! flush
< RA seq=1 ack=1
? flows 0
)"},
    {"bytes of the guest are acknowledged and dropped while flushing", R"(
! write 100
< PA seq=1 ack=1 len=100
! flush
> PA seq=1 ack=1 len=50
< A seq=101 ack=51
? events
> A seq=51 ack=101
< RA seq=101 ack=51
? flows 0
)"},
    {"a flush nobody acknowledges ends after 30 seconds", R"(
! write 100
< PA seq=1 ack=1 len=100
! flush
+ 31s
< any
? flows 0
? deadline none
)"},
};

class Reset : public ScriptTest {};
TEST_P(Reset, Script) {
  EXPECT_EQ(run_established(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Reset, ::testing::ValuesIn(kReset), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
