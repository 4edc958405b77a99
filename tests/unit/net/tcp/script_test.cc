// What the terminator does, one behaviour a case, as packet scripts (script.h). The cases follow
// the paragraphs of RFC 9293, 5961 and 7323 and the ways terminators are known to fail.

#include "unit/net/tcp/script.h"

#include <gtest/gtest.h>

namespace sandbox::tcp::testing {
namespace {

struct Case {
  const char* name;
  const char* script;
};

// A connection the owner accepted, with a guest window of 64256 bytes.
const std::string kEstablished = R"(
> S seq=0 mss=1460 scale=7 win=64240
< SA seq=0 ack=1 mss=1460 scale=7 win=65535
> A seq=1 ack=1 win=502
? events syn established
)";

class Opening : public ::testing::TestWithParam<Case> {};
class Established : public ::testing::TestWithParam<Case> {};

TEST_P(Opening, Script) {
  EXPECT_EQ(Script().run(GetParam().script), "");
}
TEST_P(Established, Script) {
  EXPECT_EQ(Script().run(kEstablished + GetParam().script), "");
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

const Case kOpening[] = {
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
    {"no scale is sent to a guest that offered none", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1 mss=1460 scale=-1 win=65535
)"},
    {"without scaling the window never exceeds 65535", R"(
> S seq=0 mss=1460
< SA seq=0 ack=1 scale=-1
> PA seq=1 ack=1 len=100
< A seq=1 ack=101 win=65435
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
+ 61s
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
    {"SYN with FIN is dropped", R"(
> SF seq=0
< nothing
? events
? flows 0
)"},
    {"SYN with RST is dropped", R"(
> SR seq=0
< nothing
? flows 0
)"},
    {"a null segment is dropped", R"(
> . seq=0
< nothing
)"},
    {"a xmas segment is dropped", R"(
> FPU seq=0
< nothing
)"},
    {"an ACK of no flow is answered with RST at its number", R"(
> A seq=5 ack=77
< R seq=77
)"},
    {"a SYN-ACK of no flow is answered with RST", R"(
> SA seq=5 ack=77
< R seq=77
)"},
    {"a RST of no flow is never answered", R"(
> R seq=5
< nothing
> RA seq=5 ack=9
< nothing
)"},
    {"a SYN to 0 0 0 0 is dropped", R"(
> S seq=0 to=0.0.0.0
< nothing
? events
)"},
    {"a SYN to broadcast is dropped", R"(
> S seq=0 to=255.255.255.255
< nothing
? events
)"},
    {"a SYN to multicast is dropped", R"(
> S seq=0 to=224.0.0.251
< nothing
? events
)"},
    {"an ACK to multicast is dropped too", R"(
> A seq=0 ack=1 to=239.1.2.3
< nothing
)"},
    {"a SYN to port 0 is refused", R"(
> S seq=0 hostport=0
< RA ack=1
? events
)"},
    {"a SYN from port 0 is dropped", R"(
> S seq=0 port=0
< nothing
? events
)"},
    {"a wrong checksum is dropped", R"(
> S seq=0 bad
< nothing
? events
)"},
    {"an option of length 0 ends the options", R"(
> S seq=0 raw=0200020405b40303
< SA seq=0 ack=1 scale=-1
)"},
    {"an option of length 1 ends the options", R"(
> S seq=0 raw=0101080103030700
< SA seq=0 ack=1 scale=-1
)"},
    {"an option longer than the header ends the options", R"(
> S seq=0 raw=0303070108ff0000
< SA seq=0 ack=1 scale=7
)"},
    {"options end at the end marker", R"(
> S seq=0 raw=0003030700000000
< SA seq=0 ack=1 scale=-1
)"},
    {"unknown options are skipped", R"(
> S seq=0 raw=0402080a0000000100000000030307
< SA seq=0 ack=1 scale=7
)"},
    {"a guest without MSS gets segments of 536 bytes", R"(
> S seq=0
< SA seq=0 ack=1
> A seq=1 ack=1
! write 1000
< A seq=1 ack=1 len=536
< PA seq=537 ack=1 len=464
)"},
    {"a tiny MSS is taken as 88", R"(
> S seq=0 mss=1
< SA seq=0 ack=1
> A seq=1 ack=1
! write 100
< A seq=1 ack=1 len=88
< PA seq=89 ack=1 len=12
)"},
    {"an MSS larger than the wire is cut to it", R"(
> S seq=0 mss=9000
< SA seq=0 ack=1
> A seq=1 ack=1
! write 2000
< A seq=1 ack=1 len=1460
< PA seq=1461 ack=1 len=540
)"},
    {"a scale beyond 14 counts as 14", R"(
> S seq=0 mss=1460 scale=200 win=1000
< SA seq=0 ack=1
> A seq=1 ack=1 win=1
! write 3000
< A seq=1 ack=1 len=1460
< A seq=1461 ack=1 len=1460
< PA seq=2921 ack=1 len=80
)"},
    {"the window of a SYN is not scaled", R"(
> S seq=0 mss=1460 scale=7 win=100
< SA seq=0 ack=1
! write 200
> A seq=1 ack=1 win=0
< nothing
)"},
    {"MSS and scale outside a SYN mean nothing", R"(
> S seq=0 mss=1460 scale=7 win=64240
< SA seq=0 ack=1
> A seq=1 ack=1 win=502 mss=100 scale=0
! write 1460
< PA seq=1 ack=1 len=1460
)"},
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
    {"a SYN-ACK the wire refused is sent when it opens", R"(
! wire 0
> S seq=0
< nothing
! wire open
< SA seq=0 ack=1
)"},
    {"a RST the wire refused is sent when it opens", R"(
! manual
! wire 0
> S seq=0
! reset
< nothing
? flows 1
! wire open
< RA ack=1
? flows 0
)"},
};

const Case kEstablishedCases[] = {
    // --- payload from the guest ---
    {"data with PSH is acknowledged at once", R"(
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
? received 100
)"},
    {"data without PSH is acknowledged after 10 ms", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> A seq=11 ack=1 len=100
< nothing
+ 9ms
< nothing
+ 1ms
< A seq=1 ack=111
)"},
    {"the first bytes are answered at once with the whole window", R"(
> A seq=1 ack=1 len=10
< A seq=1 ack=11 win=8192
)"},
    {"two full segments are acknowledged at once", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> A seq=11 ack=1 len=1460
< nothing
> A seq=1471 ack=1 len=1460
< A seq=1 ack=2931
)"},
    {"many segments in one wake-up get one ACK", R"(
>> PA seq=1 ack=1 len=1000
>> PA seq=1001 ack=1 len=1000
>> PA seq=2001 ack=1 len=1000
>> PA seq=3001 ack=1 len=1000
! settle
< A seq=1 ack=4001
< nothing
? events readable
)"},
    {"the ACK rides on data when there is some", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11
> A seq=11 ack=1 len=100
< nothing
! write 10
< PA seq=1 ack=111 len=10
< nothing
+ 50ms
< nothing
> A seq=111 ack=11
)"},
    {"a segment out of order draws a duplicate ACK at once", R"(
> PA seq=101 ack=1 len=100
< A seq=1 ack=1
? received 0
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
)"},
    {"three segments out of order in one wake-up draw three duplicate ACKs", R"(
>> A seq=101 ack=1 len=100
>> A seq=201 ack=1 len=100
>> A seq=301 ack=1 len=100
! settle
< A seq=1 ack=1
< A seq=1 ack=1
< A seq=1 ack=1
< nothing
)"},
    {"duplicate ACKs keep the window", R"(
> PA seq=1 ack=1 len=10
< A seq=1 ack=11 win=8192
> A seq=111 ack=1 len=100
< A seq=1 ack=11 win=8192
)"},
    {"a segment sent twice is acknowledged and not delivered again", R"(
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
? received 100
)"},
    {"what is new of an overlapping segment is taken", R"(
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
> PA seq=51 ack=1 len=100
< A seq=1 ack=151
? received 150
)"},
    {"bytes beyond the window are cut off", R"(
! hold
> PA seq=1 ack=1 len=20000
< A seq=1 ack=20001
> PA seq=20001 ack=1 len=30000
< A seq=1 ack=50001
? events readable readable
)"},
    {"a segment far outside the window is answered and ignored", R"(
> PA seq=3000000 ack=1 len=100
< A seq=1 ack=1
? received 0
)"},
    {"urgent data is plain data", R"(
> UPA seq=1 ack=1 len=10
< A seq=1 ack=11
? received 10
)"},
    {"a segment without ACK is dropped", R"(
> P seq=1 len=10
< nothing
? received 0
)"},
    {"held bytes are not consumed and not lost", R"(
! hold
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
> PA seq=101 ack=1 len=100
< A seq=1 ack=201
? received 0
! unhold
? received 200
)"},
    {"the window shrinks by what the owner leaves", R"(
! hold
> PA seq=1 ack=1 len=12800
< A seq=1 ack=12801 win=8092
> PA seq=12801 ack=1 len=12800
< A seq=1 ack=25601 win=7992
)"},
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
    {"every keep-alive is answered, however many", R"(
> PA seq=1 ack=1 len=1
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
>> A seq=1 ack=1
! settle
< A seq=1 ack=2
)"},
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
    {"a zero window that is answered is probed for an hour", R"(
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
    // --- our own window ---
    {"a full ring closes the window and reading opens it with an update", R"(
! hold
> PA seq=1 ack=1 len=60000
< A seq=1 ack=60001
> PA seq=60001 ack=1 len=60000
< A seq=1 ack=120001
> PA seq=120001 ack=1 len=60000
< A seq=1 ack=180001
> PA seq=180001 ack=1 len=60000
< A seq=1 ack=240001
> PA seq=240001 ack=1 len=60000
< A seq=1 ack=300001
> PA seq=300001 ack=1 len=60000
< A seq=1 ack=360001
> PA seq=360001 ack=1 len=60000
< A seq=1 ack=420001
> PA seq=420001 ack=1 len=60000
< A seq=1 ack=480001
> PA seq=480001 ack=1 len=60000
< A seq=1 ack=540001
> PA seq=540001 ack=1 len=60000
< A seq=1 ack=600001
> PA seq=600001 ack=1 len=60000
< A seq=1 ack=660001
> PA seq=660001 ack=1 len=60000
< A seq=1 ack=720001
> PA seq=720001 ack=1 len=60000
< A seq=1 ack=780001
> PA seq=780001 ack=1 len=60000
< A seq=1 ack=840001
> PA seq=840001 ack=1 len=60000
< A seq=1 ack=900001
> PA seq=900001 ack=1 len=60000
< A seq=1 ack=960001
> PA seq=960001 ack=1 len=60000
< A seq=1 ack=1020001
> PA seq=1020001 ack=1 len=28576
< A seq=1 ack=1048577 win=0
# the guest probes: answered with the closed window, the byte is not taken
> A seq=1048577 ack=1 len=1
< A seq=1 ack=1048577 win=0
# a few bytes read are not worth an update
! read 1000
< nothing
! read 70000
< A seq=1 ack=1048577 win=554
> PA seq=1048577 ack=1 len=1000
< A seq=1 ack=1049577
)"},
    {"an ACK is accepted while our window is closed", R"(
! hold
> PA seq=1 ack=1 len=100
< A seq=1 ack=101
! write 50
< PA seq=1 ack=101 len=50
> A seq=101 ack=51
+ 10s
< nothing
)"},
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
    // --- RST ---
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
    {"challenges are rationed", R"(
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
> R seq=100
< A seq=1 ack=1
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
    // --- the wire ---
    {"a refused packet advances nothing", R"(
! wire 1
! write 4000
< A seq=1 ack=1 len=1460
< nothing
! wire open
< A seq=1461 ack=1 len=1460
< PA seq=2921 ack=1 len=1080
)"},
    {"a refused ACK is sent when the wire opens", R"(
! wire 0
> PA seq=1 ack=1 len=10
< nothing
! wire open
< A seq=1 ack=11
)"},
    {"a refused FIN is sent when the wire opens", R"(
! wire 0
! close
< nothing
! wire open
< FA seq=1 ack=1
> A seq=1 ack=2
? state FIN-WAIT-2
)"},
    {"a full wire does not wear the guest out", R"(
! wire 1
! write 2920
< A seq=1 ack=1 len=1460
+ 10min
< nothing
? state ESTABLISHED
! wire open
< PA seq=1461 ack=1 len=1460
> A seq=1 ack=2921
+ 10s
< nothing
)"},
};

INSTANTIATE_TEST_SUITE_P(Tcp, Opening, ::testing::ValuesIn(kOpening), case_name);
INSTANTIATE_TEST_SUITE_P(Tcp, Established, ::testing::ValuesIn(kEstablishedCases), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
