// Bytes from the guest, what acknowledges them, and the window that holds them back.

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

// Each acknowledged, one behind the other.
std::string segments_of_60000(int count) {
  std::string script;
  for (int at = 1; count-- > 0; at += 60000) {
    script += fmt::format("> PA seq={} ack=1 len=60000\n< A seq=1 ack={}\n", at, at + 60000);
  }
  return script;
}

const Case kReceiving[] = {
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
    {"null, xmas and SYN with FIN are dropped in a flow too", R"(
> . seq=1
< nothing
> FPU seq=1 len=5
< nothing
> SFA seq=1 ack=1
< nothing
? received 0
? state ESTABLISHED
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
    // --- our own window ---
    {"a full ring closes the window and reading opens it with an update",
     "! hold\n" + segments_of_60000(17) + R"(
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
};

class Receiving : public ScriptTest {};
TEST_P(Receiving, Script) {
  EXPECT_EQ(run_established(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Receiving, ::testing::ValuesIn(kReceiving), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
