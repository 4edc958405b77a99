#include "guest/trust.h"

#include <set>

#include "base/pem.h"
#include "channel/messages.h"

namespace sandbox::guest {

namespace {

constexpr size_t kMostBundle = 8U << 20;
constexpr const char* kUsualBundle = "/etc/ssl/certs/ca-certificates.crt";

// Of distributions; several are links to one another in most.
constexpr const char* kBundles[] = {
    kUsualBundle,                                         // Debian, Arch, Alpine
    "/etc/ssl/cert.pem",                                  // Alpine: what its OpenSSL reads
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora
    "/etc/pki/tls/certs/ca-bundle.crt",                   // older relatives of Fedora
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/var/lib/ca-certificates/ca-bundle.pem",
};

Status extend(const RootDir& root, const std::string& path, std::string_view roots) {
  ASSIGN(std::string bundle, root.read(path, kMostBundle));
  const auto there = pem_certificates(bundle);
  const std::set<std::string> known(there.begin(), there.end());
  std::string missing;
  for (const std::string& certificate : pem_certificates(roots))
    if (!known.contains(certificate)) missing += certificate;
  if (missing.empty()) return {};
  if (!bundle.empty() && bundle.back() != '\n') bundle += '\n';
  return root.rewrite(path, bundle + missing);
}

}  // namespace

Status trust(const RootDir& root, std::string_view roots) {
  TRY(root.replace(channel::kHostRootsPath, roots, 0644));
  bool found = false;
  for (const char* path : kBundles) {
    if (!root.exists(path)) continue;
    TRY(extend(root, path, roots));
    found = true;
  }
  if (!found) TRY(root.replace(kUsualBundle, roots, 0644));
  // Debian's OpenSSL reads this file, which Debian does not have, and otherwise links by hash,
  // which only its own tool makes.
  if (root.exists("/usr/lib/ssl")) TRY(root.link("/usr/lib/ssl/cert.pem", kUsualBundle));
  return {};
}

}  // namespace sandbox::guest
