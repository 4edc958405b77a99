// fuzz-libs: sandbox_channel sandbox_guest
// The control messages and the user database. The first byte chooses the decoder; what a decoder
// accepts must encode to the same bytes, since every message has one spelling.
#include <algorithm>
#include <cstdlib>

#include "channel/messages.h"
#include "guest/accounts.h"

using namespace sandbox;           // NOLINT: a fuzz target
using namespace sandbox::channel;  // NOLINT

namespace {

template <class Message>
void check(const Result<Message>& message, ByteView payload) {
  if (!message) return;
  const Bytes again = encode(*message);
  if (!std::equal(again.begin(), again.end(), payload.begin(), payload.end())) std::abort();
}

void users(std::string_view text) {
  (void)guest::resolve_user("agent:audio", text, text);
  const guest::AccountEdit edit = guest::add_account({}, text, text, text, "/bin/sh");
  // After the edit the account can be found, whatever stood in the file before.
  if (!guest::find_user(edit.passwd ? std::string_view(*edit.passwd) : text, 1000U)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteView payload(data + 1, size - 1);
  switch (data[0] % 9) {
    case 0:
      check(decode_hello(payload), payload);
      break;
    case 1:
      check(decode_resume(payload), payload);
      break;
    case 2:
      check(decode_ready(payload), payload);
      break;
    case 3:
      check(decode_error(payload), payload);
      break;
    case 4:
      check(decode_clock(payload), payload);
      break;
    case 5:
      check(decode_shutdown(payload), payload);
      break;
    case 6:
      check(decode_exec(payload), payload);
      break;
    case 7:
      check(decode_exit(payload), payload);
      break;
    default:
      users(as_text(payload));
      break;
  }
  return 0;
}
