// Segments no connection has asked for (RFC 9293, 3.10.7.1), and those that nobody should send.

#include "unit/net/tcp/script_case.h"

namespace sandbox::tcp::testing {
namespace {

const Case kStray[] = {
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
};

class Stray : public ScriptTest {};
TEST_P(Stray, Script) {
  EXPECT_EQ(run(), "");
}
INSTANTIATE_TEST_SUITE_P(Tcp, Stray, ::testing::ValuesIn(kStray), case_name);

}  // namespace
}  // namespace sandbox::tcp::testing
