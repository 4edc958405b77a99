// fuzz-libs: sandbox_tls
// Whole, and byte by byte: both must come to the same end. What is accepted holds a well-formed
// name.
#include <cstdlib>

#include "net/tls/client_hello.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandbox;
  using State = tls::ClientHelloReader::State;
  const ByteView bytes(data, size);
  tls::ClientHelloReader whole;
  const State state = whole.feed(bytes);
  tls::ClientHelloReader piecewise;
  for (size_t i = 0; i < size; ++i) (void)piecewise.feed(bytes.subspan(i, 1));
  if (piecewise.state() != state || piecewise.reason() != whole.reason()) std::abort();
  if (piecewise.hello() != whole.hello()) std::abort();
  if (state == State::kHello && whole.hello().server_name) {
    const auto again = policy::HostName::parse(whole.hello().server_name->text());
    if (!again || *again != *whole.hello().server_name) std::abort();
  }
  return 0;
}
