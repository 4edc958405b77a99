// fuzz-libs: sandbox_http
// Whole, and byte by byte: both must see the same requests, let the same bytes pass, and come to
// the same end.
#include <cstdlib>
#include <string>

#include "net/http/request_head.h"

namespace {

using namespace sandbox;
using namespace sandbox::http;
using Event = RequestReader::Event;

struct Seen {
  std::string requests;
  size_t taken = 0;
  Event last = Event::kNeedMore;
  std::string reason;
};

Seen read(ByteView bytes, size_t step) {
  RequestReader reader;
  Seen seen;
  for (size_t at = 0; at < bytes.size(); at += step) {
    ByteView piece = bytes.subspan(at, std::min(step, bytes.size() - at));
    while (!piece.empty()) {
      const RequestReader::Step each = reader.feed(piece);
      if (each.consumed > piece.size()) std::abort();
      piece = piece.subspan(each.consumed);
      seen.taken += each.consumed;
      if (each.event == Event::kRequest) {
        const Request& request = reader.request();
        seen.requests += request.method + " " + (request.host ? request.host->text() : "-") + "\n";
        if (request.minor == 1 && !request.host) std::abort();
        continue;
      }
      if (each.event == Event::kBody) continue;
      if (each.event == Event::kNeedMore) {
        if (!piece.empty()) std::abort();
        continue;
      }
      seen.last = each.event;
      seen.reason = reader.reason();
      return seen;
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteView bytes(data, size);
  const Seen whole = read(bytes, size + 1);
  const Seen piecewise = read(bytes, 1);
  if (whole.requests != piecewise.requests || whole.last != piecewise.last ||
      whole.reason != piecewise.reason)
    std::abort();
  if (whole.last != Event::kMalformed && whole.taken != piecewise.taken) std::abort();
  UpgradeReply reply, slow_reply;
  const UpgradeReply::State state = reply.feed(bytes);
  UpgradeReply::State slow_state = slow_reply.feed({});
  for (size_t at = 0; at < size; ++at) slow_state = slow_reply.feed(bytes.subspan(at, 1));
  if (slow_state != state) std::abort();
  return 0;
}
