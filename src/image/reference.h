#pragma once
// What a user writes to name an image, in docker's grammar (distribution/reference):
//
//   debian                       docker.io/library/debian:latest
//   debian:bookworm-slim         docker.io/library/debian:bookworm-slim
//   ghcr.io/org/tool@sha256:…    as written
//   localhost:5000/mine          localhost:5000/mine:latest, fetched by plain http
//   oci:DIR[:TAG]                an OCI layout in a folder
//   oci-archive:FILE[:TAG]       the same in a tar file
//
// The first component is a registry when it has a dot or a colon or is "localhost"; otherwise the
// registry is docker.io.

#include <string>
#include <string_view>

#include "base/result.h"

namespace sandbox {

class ImageReference {
 public:
  static Result<ImageReference> parse(std::string_view text);

  // The canonical spelling; equal references have equal text.
  [[nodiscard]] const std::string& text() const { return text_; }
  // How skopeo names it: "docker://…", "oci:…".
  [[nodiscard]] const std::string& transport() const { return transport_; }
  // The registry is this machine itself: plain http is tried, no certificate asked for.
  [[nodiscard]] bool loopback() const { return loopback_; }

 private:
  std::string text_;
  std::string transport_;
  bool loopback_ = false;
};

}  // namespace sandbox
