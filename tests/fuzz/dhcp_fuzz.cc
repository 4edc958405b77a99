// fuzz-libs: sandbox_net
// Any DHCP message: an answer, when there is one, is complete and for the one client.

#include <cstdlib>

#include "net/dhcp.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandbox::net;  // NOLINT
  const DhcpLease lease{.client_mac = {{0x52, 0x54, 0, 0x12, 0x34, 0x56}},
                        .client_ip = {0xC0000002},
                        .server_ip = {0xC0000001}};
  const auto reply = answer_dhcp(lease, {data, size});
  if (!reply) return 0;
  const bool everyone = reply->destination_ip.value == 0xFFFFFFFF;
  if (reply->message.size() < 300 || reply->message[0] != 2) std::abort();
  if (!everyone && reply->destination_ip != lease.client_ip) std::abort();
  return 0;
}
