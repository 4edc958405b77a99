#pragma once
// The certificate authorities that this host trusts, for --trust-host-ca.

#include <string>
#include <vector>

#include "base/result.h"

namespace sandbox::cli {

// One PEM text, each certificate once: those of the first of `bundles` that exists, and of the
// files that SSL_CERT_FILE, NODE_EXTRA_CA_CERTS, REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE name. A file
// that is named and not there is an error: what it holds would be missed only inside.
Result<std::string> host_roots(const std::vector<std::string>& bundles,
                               const char* (*outside)(const char*));

// Where distributions keep theirs.
const std::vector<std::string>& host_bundles();

}  // namespace sandbox::cli
