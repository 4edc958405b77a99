// How a connection begins (RFC 9293, 3.5 and 3.10.7), from the guest or from us.

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kOpening[] = {
    // --- the guest opens ---
    {"a SYN is announced and answered by nothing before the decision", R"(
! manual
> S seq=0 mss=1460 scale=7
? events syn
< nothing
+ 20s
< nothing
? state DECIDING
)"},
    {"accept sends a SYN-ACK with our MSS and scale", R"(
! manual
> S seq=0 mss=1460 scale=7
! accept
< SA seq=0 ack=1 mss=1460 scale=7 win=65535
? state SYN-RECEIVED
)"},
    {"a duplicate SYN while deciding is ignored", R"(
! manual
> S seq=0 mss=1460
? events syn
> S seq=0 mss=1460
< nothing
? events
? flows 1
)"},
    {"a duplicate SYN after the SYN-ACK draws it again", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1
> S seq=0 mss=1460
< SA seq=0 ack=1 mss=1460
)"},
    {"a segment outside the window is asked about before the handshake is over", R"(
> S seq=0 mss=1460 scale=7
< SA seq=0 ack=1
> A seq=70000 ack=1
< A seq=1 ack=1
> PA seq=-5 ack=1 len=5
< A seq=1 ack=1
> SA seq=0 ack=1
< A seq=1 ack=1
? state SYN-RECEIVED
> A seq=1 ack=1
< nothing
? state ESTABLISHED
)"},
    {"a RST inside the window is challenged before the handshake is over", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1
> R seq=100
< A seq=1 ack=1
? state SYN-RECEIVED
> R seq=1
? events syn closed:reset
? flows 0
)"},
    {"our SYN-ACK sent again settles what was asked with it", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1
>> A seq=70000 ack=1
>> S seq=0 mss=1460
! settle
< SA seq=0 ack=1
> A seq=1 ack=1
< nothing
)"},
    {"a request for Fast Open is ignored", R"(
> S seq=0 raw=020405b422020101
< SA seq=0 ack=1 mss=1460 scale=-1
)"},
    {"a SYN with a new number while deciding replaces the first", R"(
! manual
> S seq=0 mss=1460
? events syn
> S seq=9000 mss=1460
? events closed:replaced syn
! accept
< SA seq=0 ack=9001
? flows 1
)"},
    {"a SYN with a new number after the SYN-ACK replaces the first", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1
? events syn
> S seq=9000 mss=1460
? events closed:replaced syn
< SA seq=0 ack=9001
)"},
    {"reset answers a SYN with RST and ACK", R"(
! manual
> S seq=0 mss=1460
! reset
< RA ack=1
? flows 0
? deadline none
)"},
    {"drop answers a SYN with silence and forgets it", R"(
! manual
> S seq=0 mss=1460
! drop
< nothing
? flows 0
? deadline none
> S seq=0 mss=1460
? events syn syn
)"},
    {"an owner may drop inside on_syn", R"(
! host syn=drop
> S seq=0 mss=1460
< nothing
? flows 0
)"},
    {"a guest that resets while deciding ends the flow", R"(
! manual
> S seq=0
? events syn
> R seq=1
? events closed:reset
? flows 0
)"},
    {"SYN and RST in one batch leave no trace", R"(
>> S seq=0
>> R seq=1
! settle
? events
< nothing
? flows 0
)"},
    {"RST and a new SYN of the same ports in one batch end one flow and open another", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1
> A seq=1 ack=1
? events syn established
>> R seq=1
>> S seq=70000 mss=1460
! settle
? events closed:reset syn
< SA seq=0 ack=70001
> A seq=70001 ack=1
? events established
? flows 1
)"},
    {"accept after the guest gave up in the same batch does nothing", R"(
! manual
> S seq=0
>> R seq=1
! accept
< nothing
? events syn closed:reset
? flows 0
)"},
    {"payload on a SYN is left to be sent again", R"(
> S seq=0 mss=1460 len=100
< SA seq=0 ack=1
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
? received 100
)"},
    {"the SYN-ACK is sent again until it is answered", R"(
> S seq=0
< SA seq=0 ack=1
+ 199ms
< nothing
+ 1ms
< SA seq=0 ack=1
+ 400ms
< SA seq=0 ack=1
+ 800ms
< SA seq=0 ack=1
)"},
    {"a half-open flow ends after 30 seconds", R"(
> S seq=0
< SA seq=0 ack=1
? events syn
+ 29s
< any
? events
+ 2s
? events closed:timeout
< RA seq=1 ack=1
? flows 0
? deadline none
)"},
    {"a decision the owner forgot ends by itself", R"(
! manual
> S seq=0
? events syn
+ 91s
? events closed:timeout
< RA ack=1
? flows 0
)"},
    {"an ACK of a number never sent is answered with RST before the handshake is over", R"(
> S seq=0
< SA seq=0 ack=1
> A seq=1 ack=5
< R seq=5
? state SYN-RECEIVED
)"},
    {"a segment refused before the handshake is over leaves nothing owed", R"(
> S seq=0
< SA seq=0 ack=1
> PA seq=1001 ack=0 len=10
< R seq=0
> A seq=1 ack=1
< nothing
? state ESTABLISHED
)"},
    {"data with the handshake ACK is taken", R"(
> S seq=0
< SA seq=0 ack=1
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
? events syn established readable
)"},
    {"a lost handshake ACK is made up for by the first data", R"(
> S seq=0
< SA seq=0 ack=1
+ 200ms
< SA seq=0 ack=1
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
? state ESTABLISHED
)"},
    {"a server that speaks first speaks right after the handshake and no bare ACK goes before", R"(
> S seq=0 mss=1460 scale=7
< SA seq=0 ack=1
! write 20
< nothing
> A seq=1 ack=1 win=502
< PA seq=1 ack=1 len=20
< nothing
)"},
    {"no bare ACK answers the handshake ACK", R"(
> S seq=0 mss=1460 scale=7
< SA seq=0 ack=1
> A seq=1 ack=1
< nothing
+ 1s
< nothing
)"},
    {"FIN with the handshake ACK half-closes at once", R"(
> S seq=0
< SA seq=0 ack=1
> FA seq=1 ack=1
< A seq=1 ack=2
? events syn established fin
? state CLOSE-WAIT
! close
< FA seq=1 ack=2
> A seq=2 ack=2
? events closed:finished
? flows 0
)"},
    {"FIN in answer to the SYN-ACK then a new SYN is challenged and the RST makes way", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1
> FA seq=1 ack=1
< A seq=1 ack=2
? events syn established fin
> S seq=500000 mss=1460
< A seq=1 ack=2
> R seq=2
? events closed:reset
> S seq=500000 mss=1460
< SA seq=0 ack=500001
? events syn
? flows 1
)"},
    {"the host may close before the handshake is over", R"(
> S seq=0
< SA seq=0 ack=1
! write 5
! close
> A seq=1 ack=1
< FPA seq=1 ack=1 len=5
? state FIN-WAIT-1
)"},
    // --- we open ---
    {"we open a connection into the guest", R"(
! connect
< S seq=0 mss=1460 scale=7 win=65535 port=8080
> SA seq=0 ack=1 mss=1460 scale=7 port=8080 hostport=50000
< A seq=1 ack=1
? events established
! write 5
< PA seq=1 ack=1 len=5
)"},
    {"a guest that refuses our connection is told apart", R"(
! connect
< S seq=0
> RA seq=0 ack=1 port=8080 hostport=50000
? events closed:refused
? flows 0
? deadline none
)"},
    {"a RST that acknowledges nothing does not refuse our connection", R"(
! connect
< S seq=0
> R seq=0 port=8080 hostport=50000
? events
? state SYN-SENT
> RA seq=0 ack=9 port=8080 hostport=50000
? events
)"},
    {"our SYN is sent again and given up after 30 seconds", R"(
! connect
< S seq=0
+ 200ms
< S seq=0
+ 30s
< any
? events closed:timeout
? flows 0
)"},
    {"a wrong SYN-ACK to our SYN is answered with RST", R"(
! connect
< S seq=0
> SA seq=0 ack=44 port=8080 hostport=50000
< R seq=44
? state SYN-SENT
)"},
    {"both ends opening at once meet", R"(
! connect
< S seq=0
> S seq=0 mss=1460 scale=7 port=8080 hostport=50000
< SA seq=0 ack=1
> SA seq=0 ack=1 mss=1460 scale=7 port=8080 hostport=50000
? events established
? state ESTABLISHED
)"},
};

class Opening : public ScriptTest {};
TEST_P(Opening, Script) {
  EXPECT_EQ(run(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Opening, ::testing::ValuesIn(kOpening), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
