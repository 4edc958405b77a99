// fuzz-libs: sandbox_image
// Both readers of image JSON on the same bytes.
#include <cstddef>
#include <cstdint>

#include "image/oci.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)sandbox::parse_manifest(text);
  (void)sandbox::parse_image_description(text);
  return 0;
}
