#pragma once
// The JSON of an image: manifest and configuration, in the OCI form (image-spec manifest.md,
// config.md) and docker's schema 2, which differ in media types only. Unknown members are ignored,
// as the specification asks.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/digest.h"
#include "image/image.h"

namespace sandbox {

struct Descriptor {
  Digest digest;
  uint64_t size = 0;
  std::string media_type;
};

struct Manifest {
  Descriptor config;
  std::vector<Descriptor> layers;  // from the bottom up
};

struct ImageDescription {
  ImageConfig config;
  std::vector<Digest> diff_ids;  // digest of each layer uncompressed, from the bottom up
  std::string architecture;      // "amd64"
  std::string os;                // "linux"
};

inline constexpr size_t kMaxImageJson = 8U << 20;
inline constexpr size_t kMaxLayers = 512;

Result<Manifest> parse_manifest(std::string_view json);
Result<ImageDescription> parse_image_description(std::string_view json);

}  // namespace sandbox
