#include "image/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace sandbox {

Result<Digest> Digest::parse(std::string_view text) {
  static constexpr std::string_view kPrefix = "sha256:";
  if (!text.starts_with(kPrefix))
    return fail(Code::kInvalid, "'{}' is not a sha256 digest",
                escape_terminal(text.substr(0, 100)));
  const std::string_view hex = text.substr(kPrefix.size());
  const auto bytes = hex.size() == 64 && hex == to_lower(hex) ? from_hex(hex) : std::nullopt;
  if (!bytes)
    return fail(Code::kInvalid, "'{}' is not a sha256 digest",
                escape_terminal(text.substr(0, 100)));
  Digest digest;
  std::copy(bytes->begin(), bytes->end(), digest.bytes_.begin());
  return digest;
}

Digest Digest::of(ByteView bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string Digest::hex() const {
  return to_hex(bytes_);
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

// The calls below fail only without memory or without SHA-256 in the library: nothing to go on
// with.
Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) != 1) std::abort();
}

Sha256::~Sha256() = default;

void Sha256::update(ByteView bytes) {
  if (EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) != 1) std::abort();
}

Digest Sha256::finish() {
  std::array<uint8_t, 32> bytes{};
  if (EVP_DigestFinal_ex(context_->evp, bytes.data(), nullptr) != 1) std::abort();
  return Digest(bytes);
}

}  // namespace sandbox
