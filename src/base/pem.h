#pragma once
// Certificates in PEM (RFC 7468), as bundles hold them: text with blocks in it.

#include <string>
#include <string_view>
#include <vector>

namespace sandbox {

// The CERTIFICATE blocks of a text in one form (lines of 64, LF), so that equal certificates are
// equal strings. What is no whole block of base64 is passed over, as the programs that read bundles
// do.
std::vector<std::string> pem_certificates(std::string_view text);

}  // namespace sandbox
