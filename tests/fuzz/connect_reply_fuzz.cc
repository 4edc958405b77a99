// fuzz-libs: sandbox_http
// Whole, and byte by byte: both must take the same bytes and come to the same end, and never take
// more than an answer may have.
#include <cstdlib>
#include <string>

#include "net/http/connect.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sandbox;        // NOLINT
  using namespace sandbox::http;  // NOLINT
  const ByteView bytes(data, size);
  ConnectReply whole, piecewise;
  const ConnectReply::Step step = whole.feed(bytes);
  ConnectReply::Step last;
  size_t taken = 0;
  for (size_t at = 0; at < size && last.state == ConnectReply::State::kNeedMore; ++at) {
    last = piecewise.feed(bytes.subspan(at, 1));
    taken += last.consumed;
  }
  if (last.state != step.state || taken != step.consumed) std::abort();
  if (taken > size || taken > ConnectReply::kMaxHead) std::abort();
  if (whole.text() != piecewise.text() || whole.text().size() > 100) std::abort();
  // What is over takes nothing more.
  if (step.state != ConnectReply::State::kNeedMore &&
      (whole.feed(bytes).consumed != 0 || whole.feed(bytes).state != step.state))
    std::abort();
  return 0;
}
