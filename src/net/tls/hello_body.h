#pragma once
// Inside of the TLS library: the body of one ClientHello.

#include "net/tls/client_hello.h"

namespace sandbox::tls {

// `body` is the handshake message without its four header bytes. The error says why no server name
// can be relied upon.
Result<Hello> parse_hello_body(ByteView body);

}  // namespace sandbox::tls
