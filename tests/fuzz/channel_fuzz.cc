// fuzz-libs: sandbox_channel
// Both roles of the channel at once: the bytes go through a decoder in pieces whose size the first
// byte chooses, and each exec frame through a monitor, once as the host's and once as the guest's.
#include <algorithm>
#include <cstdlib>

#include "channel/stream.h"

using namespace sandbox;           // NOLINT: a fuzz target
using namespace sandbox::channel;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0];
  ByteView rest(data + 1, size - 1);
  FrameDecoder decoder;
  StreamMonitor host;
  StreamMonitor guest;
  (void)guest.from_host({1, FrameType::kExec, 0, {}});
  Bytes again;
  Bytes consumed;
  bool failed = false;
  while (!rest.empty() && !failed) {
    const size_t count = std::min(piece, rest.size());
    decoder.feed(rest.first(count));
    consumed.insert(consumed.end(), rest.begin(), rest.begin() + static_cast<ptrdiff_t>(count));
    rest = rest.subspan(count);
    while (true) {
      const auto frame = decoder.next();
      failed = !frame;
      if (failed || !*frame) break;
      append_frame(again, **frame);
      (void)host.from_host(**frame);
      (void)guest.from_guest(**frame);
      for (const Pipe pipe : {Pipe::kStdin, Pipe::kStdout, Pipe::kStderr}) {
        if (guest.available(pipe) > kWindow || host.available(pipe) > kWindow) std::abort();
      }
    }
    if (decoder.buffered() > kHeaderSize + kMaxPayload + piece) std::abort();
  }
  // What was accepted is spelled exactly as it came.
  if (again.size() > consumed.size() || !std::equal(again.begin(), again.end(), consumed.begin()))
    std::abort();
  return 0;
}
