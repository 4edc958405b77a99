// fuzz-libs: sandbox_machine
#include <cstddef>
#include <cstdint>

#include "machine/qmp.h"

// A QEMU taken over by its guest writes to us. The first byte says in pieces of which size the rest
// arrives.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = size_t{data[0]} + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  sandbox::QmpParser parser;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const bool fine = parser.feed(bytes.substr(at, piece)).has_value();
    sandbox::QmpMessage message{};
    while (parser.next(message)) {
    }
    if (!fine) break;
  }
  return 0;
}
