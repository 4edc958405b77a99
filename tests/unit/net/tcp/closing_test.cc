// How a connection ends in order: FIN, half-closed, TIME-WAIT (RFC 9293, 3.6).

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kClosing[] = {
    // --- closing ---
    {"the guest closes first", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
? events fin
? state CLOSE-WAIT
! write 10
< PA seq=1 ack=2 len=10
> A seq=2 ack=11
! close
< FA seq=11 ack=2
? state LAST-ACK
> A seq=2 ack=12
? events closed:finished
? flows 0
? deadline none
)"},
    {"the host closes first", R"(
! close
< FA seq=1 ack=1
? state FIN-WAIT-1
> A seq=1 ack=2
? state FIN-WAIT-2
> PA seq=1 ack=2 len=10
< A seq=2 ack=11
? received 10
> FA seq=11 ack=2
< A seq=2 ack=12
? events readable fin closed:finished
? flows 1
+ 10s
? flows 0
? deadline none
)"},
    {"FIN follows the last byte", R"(
! write 2000
< A seq=1 ack=1 len=1460
< PA seq=1461 ack=1 len=540
! write 10
< PA seq=2001 ack=1 len=10
! close
< FA seq=2011 ack=1
)"},
    {"FIN waits for a closed window", R"(
> A seq=1 ack=1 win=0
! write 10
! close
< nothing
+ 200ms
< A seq=0 ack=1
> A seq=1 ack=1 win=502
< FPA seq=1 ack=1 len=10
)"},
    {"a lost FIN is sent again", R"(
! close
< FA seq=1 ack=1
+ 200ms
< FA seq=1 ack=1
+ 400ms
< FA seq=1 ack=1
> A seq=1 ack=2
+ 60s
< nothing
? state FIN-WAIT-2
)"},
    {"both close at once", R"(
! close
< FA seq=1 ack=1
> FA seq=1 ack=1
< A seq=2 ack=2
? state CLOSING
? events fin
> A seq=2 ack=2
? events closed:finished
+ 11s
? flows 0
)"},
    {"a FIN sent twice is acknowledged twice", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
> FA seq=1 ack=1
< A seq=1 ack=2
? events fin
)"},
    {"a FIN with data delivers the data first", R"(
> FPA seq=1 ack=1 len=10
< A seq=1 ack=12
? events readable fin
? received 10
)"},
    {"a FIN out of order waits for what is missing", R"(
> FA seq=11 ack=1
< A seq=1 ack=1
? events
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> FA seq=11 ack=1
< A seq=1 ack=12
? events readable fin
)"},
    {"the guest FIN is told only when all before it was consumed", R"(
! hold
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> FA seq=11 ack=1
< A seq=1 ack=12
? events readable readable
! unhold
? events fin
)"},
    {"the end is told only when all was consumed", R"(
! hold
! close
< FA seq=1 ack=1
> FPA seq=1 ack=2 len=10
< A seq=2 ack=12
? events readable
+ 20s
? events
? flows 1
! unhold
? events fin closed:finished
? flows 0
)"},
    {"bytes after the guest FIN are not taken", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
? events fin
> PA seq=2 ack=1 len=10
< A seq=1 ack=2
? events
)"},
    {"a second FIN after the first is told where the flow stands", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
> FA seq=2 ack=1
< A seq=1 ack=2
? events fin
)"},
    {"a half-closed flow ends after 15 idle minutes", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
? events fin
+ 14min
? events
+ 2min
? events closed:timeout
< RA seq=1 ack=2
? flows 0
)"},
    {"data keeps a half-closed flow alive", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
+ 14min
! write 10
< PA seq=1 ack=2 len=10
> A seq=2 ack=11
+ 14min
? state CLOSE-WAIT
)"},
    {"a guest that never acknowledges our FIN leaks nothing", R"(
> FA seq=1 ack=1
< A seq=1 ack=2
! close
< FA seq=1 ack=2
+ 130s
< any
? events fin closed:timeout
? flows 0
? deadline none
)"},
    {"an owner may close inside on_guest_fin", R"(
! host fin=close
> FA seq=1 ack=1
< FA seq=1 ack=2
> A seq=2 ack=2
? flows 0
)"},
    {"an owner may abort inside on_readable", R"(
! host readable=abort
> FPA seq=1 ack=1 len=5
< RA seq=1
? events readable
? flows 0
)"},
    // --- TIME-WAIT ---
    {"a FIN sent again in TIME-WAIT is acknowledged and starts the wait over", R"(
! close
< FA seq=1 ack=1
> FA seq=1 ack=2
< A seq=2 ack=2
+ 6s
> FA seq=1 ack=2
< A seq=2 ack=2
+ 6s
? flows 1
+ 4s
? flows 0
)"},
    {"a SYN with a higher number takes over from TIME-WAIT", R"(
! close
< FA seq=1 ack=1
> FA seq=1 ack=2
< A seq=2 ack=2
? events fin closed:finished
> S seq=5000 mss=1460
? events syn
< SA seq=0 ack=5001
> A seq=5001 ack=1
? events established
? flows 1
)"},
    {"a SYN with an old number in TIME-WAIT is challenged and its RST makes way", R"(
! close
< FA seq=1 ack=1
> FA seq=1 ack=2
< A seq=2 ack=2
> S seq=0 mss=1460
< A seq=2 ack=2
> R seq=2
? flows 0
> S seq=0 mss=1460
< SA seq=0 ack=1
)"},
    {"an ACK in TIME-WAIT changes nothing", R"(
! close
< FA seq=1 ack=1
> FA seq=1 ack=2
< A seq=2 ack=2
> A seq=2 ack=2
< nothing
? flows 1
)"},
};

class Closing : public ScriptTest {};
TEST_P(Closing, Script) {
  EXPECT_EQ(run_established(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Closing, ::testing::ValuesIn(kClosing), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
