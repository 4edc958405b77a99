// Bytes to the guest: segments, resending (RFC 6298, 5681) and windows that close (RFC
// 9293, 3.8.6).

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kSending[] = {
    // --- payload to the guest ---
    {"data goes out in segments and the last one pushes", R"(
! write 4000
< A seq=1 ack=1 len=1460
< A seq=1461 ack=1 len=1460
< PA seq=2921 ack=1 len=1080
> A seq=1 ack=4001
< nothing
+ 10s
< nothing
)"},
    {"a small write is not held back", R"(
! write 10
< PA seq=1 ack=1 len=10
! write 10
< PA seq=11 ack=1 len=10
)"},
    {"no more than the window goes out", R"(
> A seq=1 ack=1 win=23
! write 4000
< A seq=1 ack=1 len=1460
< A seq=1461 ack=1 len=1460
< nothing
> A seq=1 ack=2921 win=23
< PA seq=2921 ack=1 len=1080
)"},
    {"an ACK that opens the window lets more out", R"(
> A seq=1 ack=1 win=0
! write 100
< nothing
> A seq=1 ack=1 win=10
< PA seq=1 ack=1 len=100
)"},
    {"an old ACK does not move the window", R"(
> PA seq=1 ack=1 len=10 win=100
< A seq=1 ack=11
> A seq=11 ack=1 win=0
> A seq=1 ack=1 win=100
< A seq=1 ack=11
! write 10
< nothing
)"},
    {"an ACK of what was never sent is challenged", R"(
> A seq=1 ack=9000
< A seq=1 ack=1
! write 5
< PA seq=1 ack=1 len=5
)"},
    {"an ACK before our first byte is challenged and its payload dropped", R"(
! write 5
< PA seq=1 ack=1 len=5
> A seq=1 ack=6
> PA seq=1 ack=0 len=10
< A seq=6 ack=1
? received 0
> PA seq=1 ack=1 len=10
< A seq=6 ack=11
? received 10
)"},
    {"a newer ACK brings its window whatever came before its turn", R"(
! write 100
< PA seq=1 ack=1 len=100
> PA seq=5001 ack=1 len=10 win=502
< A seq=101 ack=1
> A seq=1 ack=101 win=0
! write 10
< nothing
> A seq=5011 ack=101 win=502
< PA seq=101 ack=1 len=10
)"},
    {"the last segment sent again brings its ACK", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
! close
< FA seq=1 ack=11
> PA seq=1 ack=2 len=10
< A seq=2 ack=11
? received 10
? state FIN-WAIT-2
)"},
    {"a FIN sent again with the last bytes is not taken twice", R"(
> FPA seq=1 ack=1 len=10
< A seq=1 ack=12
> FPA seq=1 ack=1 len=10
< A seq=1 ack=12
> PA seq=1 ack=1 len=11
< A seq=1 ack=12
? received 10
? events readable fin
)"},
    {"a FIN inside what was taken as data is none", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> FPA seq=1 ack=1 len=9
< A seq=1 ack=11
? state ESTABLISHED
)"},
    {"an ACK older than any window is challenged", R"(
> A seq=1 ack=-900000
< A seq=1 ack=1
)"},
    {"lost data is sent again after 200 ms, then 400, then 800", R"(
! write 100
< PA seq=1 ack=1 len=100
+ 199ms
< nothing
+ 1ms
< PA seq=1 ack=1 len=100
+ 399ms
< nothing
+ 1ms
< PA seq=1 ack=1 len=100
+ 800ms
< PA seq=1 ack=1 len=100
> A seq=1 ack=101
+ 60s
< nothing
)"},
    {"the doubling stops at 8 s", R"(
! write 100
< PA seq=1 ack=1 len=100
+ 6300ms
< PA seq=1 ack=1 len=100
< PA seq=1 ack=1 len=100
< PA seq=1 ack=1 len=100
< PA seq=1 ack=1 len=100
< PA seq=1 ack=1 len=100
+ 6299ms
< nothing
+ 1ms
< PA seq=1 ack=1 len=100
+ 7999ms
< nothing
+ 1ms
< PA seq=1 ack=1 len=100
+ 7999ms
< nothing
+ 1ms
< PA seq=1 ack=1 len=100
)"},
    {"progress makes the timer short again", R"(
! write 100
< PA seq=1 ack=1 len=100
+ 200ms
< PA seq=1 ack=1 len=100
+ 400ms
< PA seq=1 ack=1 len=100
> A seq=1 ack=101
! write 100
< PA seq=101 ack=1 len=100
+ 200ms
< PA seq=101 ack=1 len=100
)"},
    {"a timeout sends one segment and waits for the answer", R"(
! write 4000
< A seq=1 ack=1 len=1460
< A seq=1461 ack=1 len=1460
< PA seq=2921 ack=1 len=1080
+ 200ms
< A seq=1 ack=1 len=1460
< nothing
> A seq=1 ack=4001
< nothing
)"},
    {"after a timeout the rest follows as ACKs come", R"(
! write 4000
< A seq=1 ack=1 len=1460
< A seq=1461 ack=1 len=1460
< PA seq=2921 ack=1 len=1080
+ 200ms
< A seq=1 ack=1 len=1460
> A seq=1 ack=1461
< A seq=1461 ack=1 len=1460
< PA seq=2921 ack=1 len=1080
)"},
    {"three duplicate ACKs send again from the hole", R"(
! write 7300
< any
> A seq=1 ack=1 win=502
> A seq=1 ack=1 win=502
< nothing
> A seq=1 ack=1 win=502
< A seq=1 ack=1 len=1460
< nothing
> A seq=1 ack=7301
+ 10s
< nothing
)"},
    {"more duplicate ACKs do not start over", R"(
! write 2920
< A seq=1 ack=1 len=1460
< PA seq=1461 ack=1 len=1460
> A seq=1 ack=1 win=502
> A seq=1 ack=1 win=502
> A seq=1 ack=1 win=502
< A seq=1 ack=1 len=1460
> A seq=1 ack=1 win=502
< PA seq=1461 ack=1 len=1460
> A seq=1 ack=1 win=502
> A seq=1 ack=1 win=502
> A seq=1 ack=1 win=502
< nothing
)"},
    {"window updates are not duplicate ACKs", R"(
! write 100
< PA seq=1 ack=1 len=100
> A seq=1 ack=1 win=501
> A seq=1 ack=1 win=500
> A seq=1 ack=1 win=499
> A seq=1 ack=1 win=498
< nothing
)"},
    {"segments before their turn and segments sent again are not duplicate ACKs", R"(
> PA seq=1 ack=1 len=10 win=502
< A seq=1 ack=11
! write 100
< PA seq=1 ack=11 len=100
> PA seq=21 ack=1 len=10 win=502
< A seq=101 ack=11
> PA seq=1 ack=1 len=10 win=502
< A seq=101 ack=11
> PA seq=21 ack=1 len=10 win=502
< A seq=101 ack=11
> PA seq=1 ack=1 len=10 win=502
< A seq=101 ack=11
< nothing
)"},
    {"data segments are not duplicate ACKs", R"(
! write 100
< PA seq=1 ack=1 len=100
> PA seq=1 ack=1 len=10 win=502
< A seq=101 ack=11
> PA seq=11 ack=1 len=10 win=502
< A seq=101 ack=21
> PA seq=21 ack=1 len=10 win=502
< A seq=101 ack=31
> PA seq=31 ack=1 len=10 win=502
< A seq=101 ack=41
)"},
    {"a guest silent for two minutes while data waits is given up", R"(
! write 100
< PA seq=1 ack=1 len=100
+ 119s
< any
? state ESTABLISHED
+ 10s
< any
? events closed:timeout
? flows 0
? deadline none
)"},
    {"an hour of silence before the data does not count against the guest", R"(
+ 1h
! write 100
< PA seq=1 ack=1 len=100
+ 200ms
< PA seq=1 ack=1 len=100
? state ESTABLISHED
)"},
    // --- zero window ---
    {"a zero window is probed without sending into it", R"(
> A seq=1 ack=1 win=0
! write 100
< nothing
+ 200ms
< A seq=0 ack=1
+ 400ms
< A seq=0 ack=1
> A seq=1 ack=1 win=502
< PA seq=1 ack=1 len=100
)"},
    {"a zero window for minutes is probed as long as it is answered", R"(
> A seq=1 ack=1 win=0
! write 100
+ 60s
< any
> A seq=1 ack=1 win=0
+ 100s
< any
> A seq=1 ack=1 win=0
+ 100s
< any
> A seq=1 ack=1 win=0
+ 110s
< any
> A seq=1 ack=1 win=0
? state ESTABLISHED
> A seq=1 ack=1 win=502
< PA seq=1 ack=1 len=100
)"},
    {"a zero window nobody answers for is given up", R"(
> A seq=1 ack=1 win=0
! write 100
+ 130s
< any
? events closed:timeout
? flows 0
)"},
    {"a window shrunk below what is out is no deadlock", R"(
! write 2920
< A seq=1 ack=1 len=1460
< PA seq=1461 ack=1 len=1460
> A seq=1 ack=1 win=0
+ 200ms
< A seq=0 ack=1
> A seq=1 ack=1 win=502
< A seq=1 ack=1 len=1460
> A seq=1 ack=2921
+ 10s
< nothing
)"},
    {"a window smaller than a segment is used when the timer asks", R"(
> A seq=1 ack=1 win=1
! write 1000
< nothing
+ 200ms
< A seq=1 ack=1 len=128
> A seq=1 ack=129 win=1
+ 200ms
< A seq=129 ack=1 len=128
)"},
    {"a window update that was lost is recovered by our probe", R"(
> A seq=1 ack=1 win=0
! write 10
+ 200ms
< A seq=0 ack=1
> A seq=1 ack=1 win=502
< PA seq=1 ack=1 len=10
)"},
};

class Sending : public ScriptTest {};
TEST_P(Sending, Script) {
  EXPECT_EQ(run_established(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Sending, ::testing::ValuesIn(kSending), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
