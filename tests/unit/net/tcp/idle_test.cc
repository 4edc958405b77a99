// Connections on which nothing happens: keep-alives of the guest (RFC 9293, 3.8.4), ours, and
// memory.

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kIdle[] = {
    // --- keep-alive and probes of the guest ---
    {"a keep-alive is answered", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> A seq=10 ack=1 win=502
< A seq=1 ack=11
)"},
    {"a keep-alive with a byte is answered and the byte ignored", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> A seq=10 ack=1 len=1
< A seq=1 ack=11
? received 10
)"},
    {"keep-alives are not taken for duplicate ACKs", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
! write 100
< PA seq=1 ack=11 len=100
> A seq=10 ack=1 win=502
< A seq=101 ack=11
> A seq=10 ack=1 win=502
< A seq=101 ack=11
> A seq=10 ack=1 win=502
< A seq=101 ack=11
> A seq=10 ack=1 win=502
< A seq=101 ack=11
)"},
    {"every keep-alive is answered, however many",
     "> PA seq=1 ack=1 len=1\n< A seq=1 ack=2\n" +
         repeated(11, "> A seq=1 ack=1\n< A seq=1 ack=2\n")},
    // --- idle ---
    {"an idle flow is asked after two hours and lives when it answers", R"(
+ 119min
< nothing
+ 1min
< A seq=0 ack=1
> A seq=1 ack=1 win=502
+ 119min
< nothing
+ 1min
< A seq=0 ack=1
? state ESTABLISHED
)"},
    {"ten idle minutes change nothing, and both directions go on after them", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
+ 10min
< nothing
> PA seq=11 ack=1 len=10
< A seq=1 ack=21
+ 10min
< nothing
! write 100
< PA seq=1 ack=21 len=100
> A seq=21 ack=101 win=502
< nothing
? received 20
? state ESTABLISHED
)"},
    {"an idle flow that does not answer ends", R"(
+ 2h
< A seq=0 ack=1
+ 20min
< any
? events closed:timeout
? flows 0
? deadline none
)"},
    {"idle rings give their memory back", R"(
! hold
> PA seq=1 ack=1 len=60000
< A seq=1 ack=60001
? memory 65536
! unhold
+ 11s
? memory 0
< any
> PA seq=60001 ack=1 len=10
< A seq=1 ack=60011
)"},
};

class Idle : public ScriptTest {};
TEST_P(Idle, Script) {
  EXPECT_EQ(run_established(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Idle, ::testing::ValuesIn(kIdle), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
