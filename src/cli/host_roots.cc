#include "cli/host_roots.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/pem.h"
#include "base/text.h"

namespace sandbox::cli {

namespace {

constexpr size_t kMostFile = 8U << 20;
// They travel in the orders to the guest, which are one message of at most 1 MiB.
constexpr size_t kMostTogether = 768U << 10;

}  // namespace

const std::vector<std::string>& host_bundles() {
  static const std::vector<std::string> all = {
      "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Arch, Alpine
      "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora
      "/etc/ssl/ca-bundle.pem",                             // openSUSE
      "/etc/ssl/cert.pem"};
  return all;
}

Result<std::string> host_roots(const std::vector<std::string>& bundles,
                               const char* (*outside)(const char*)) {
  std::vector<std::pair<std::string, std::string>> files;  // path, who names it
  const auto bundle = std::ranges::find_if(
      bundles, [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; });
  if (bundle != bundles.end()) files.emplace_back(*bundle, "this host's bundle");
  for (const char* name :
       {"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"})
    if (const char* path = outside(name); path != nullptr && *path != '\0')
      files.emplace_back(path, name);

  std::string out;
  std::set<std::string> known;
  for (const auto& [path, who] : files) {
    const auto text = read_file(path, kMostFile);
    if (!text)
      return fail(Error{text.error().code,
                        fmt::format("--trust-host-ca: {} ({}): {}", escape_terminal(path), who,
                                    text.error().message),
                        "unset the variable, or put the file there"});
    for (const std::string& certificate : pem_certificates(*text))
      if (known.insert(certificate).second) out += certificate;
  }
  if (out.empty())
    return fail(Error{Code::kNotFound, "--trust-host-ca: this host has no certificates to trust",
                      "install its package ca-certificates, or set SSL_CERT_FILE"});
  if (out.size() > kMostTogether)
    return fail(Code::kLimit, "--trust-host-ca: {} certificates of {} together; at most {} fit",
                known.size(), format_size(out.size()), format_size(kMostTogether));
  return out;
}

}  // namespace sandbox::cli
