// fuzz-libs: sandbox_file_wire
// The decoder of the file port: whatever the pieces, the same messages or the same failure, and
// nothing beyond the limits.

#include <cstdlib>

#include "files/transport.h"

using namespace sandbox;  // NOLINT: a fuzz target is one function

namespace {

struct Seen {
  std::vector<std::pair<uint32_t, Bytes>> messages;
  bool failed = false;
  bool operator==(const Seen&) const = default;
};

Seen decode(ByteView stream, size_t piece) {
  Seen seen;
  files::Decoder decoder;
  for (size_t at = 0; at < stream.size() && !seen.failed; at += piece) {
    decoder.append(stream.subspan(at, std::min(piece, stream.size() - at)));
    while (true) {
      const auto message = decoder.next();
      if (!message) seen.failed = true;
      if (!message || !*message) break;
      const ByteView payload = (*message)->payload;
      if (payload.size() < files::kMinPayload || payload.size() > files::kMaxPayload) std::abort();
      seen.messages.emplace_back((*message)->share, Bytes(payload.begin(), payload.end()));
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const ByteView stream = ByteView(data, size).subspan(1);
  if (decode(stream, 1U + data[0]) != decode(stream, size)) std::abort();
  return 0;
}
