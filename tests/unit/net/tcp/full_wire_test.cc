// A wire that takes no packet for a while: nothing is lost, and nobody is to blame.

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kFullWire[] = {
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

class FullWire : public ScriptTest {};
TEST_P(FullWire, Script) {
  EXPECT_EQ(run(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, FullWire, ::testing::ValuesIn(kFullWire), case_name);

const Case kFullWireEstablished[] = {
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

class FullWireEstablished : public ScriptTest {};
TEST_P(FullWireEstablished, Script) {
  EXPECT_EQ(run_established(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, FullWireEstablished, ::testing::ValuesIn(kFullWireEstablished),
                         case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
