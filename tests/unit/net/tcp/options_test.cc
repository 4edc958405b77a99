// Options of a SYN (RFC 9293, 3.2; RFC 7323, 2).

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kOptions[] = {
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
    {"an MSS of 0 counts as none", R"(
> S seq=0 mss=0
< SA seq=0 ack=1
> A seq=1 ack=1
! write 1000
< A seq=1 ack=1 len=536
< PA seq=537 ack=1 len=464
)"},
    {"an option of length 255 ends the options", R"(
> S seq=0 raw=02ff05b403030700
< SA seq=0 ack=1 scale=-1
)"},
    {"only a SYN of ours has options", R"(
> S seq=0 mss=1460 scale=7 win=64240
< SA seq=0 ack=1 mss=1460 scale=7
> A seq=1 ack=1 win=502
! write 10
< PA seq=1 ack=1 len=10 mss=-1 scale=-1
! close
< FA seq=11 ack=1 mss=-1 scale=-1
! abort
< RA seq=12 ack=1 mss=-1 scale=-1
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
};

class Options : public ScriptTest {};
TEST_P(Options, Script) {
  EXPECT_EQ(run(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Options, ::testing::ValuesIn(kOptions), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
