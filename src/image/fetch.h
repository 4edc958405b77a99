#pragma once
// Brings an image's manifest, configuration and layers into a folder, by skopeo: registries,
// mirrors, proxies and `docker login` credentials work as they do there. The folder has skopeo's
// "dir:" form: manifest.json and one file per blob, named by its digest's hex, all of it byte for
// byte what the registry has, so the image keeps docker's IMAGE ID.

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/progress.h"
#include "base/result.h"
#include "image/oci.h"
#include "image/reference.h"

namespace sandbox {

struct FetchedImage {
  Manifest manifest;
  ImageDescription description;
  [[nodiscard]] std::string id() const { return manifest.config.digest.text(); }
};

// `folder` must be empty. Checks what skopeo brought: the configuration against its descriptor, one
// diff_id per layer, the platform. Layers are checked when they are read.
Result<FetchedImage> fetch_image(const ImageReference& reference, const std::string& folder,
                                 Progress& progress);
// The id that the reference has in its registry right now; costs two small requests.
Result<std::string> fetch_image_id(const ImageReference& reference, const std::string& scratch,
                                   Progress& progress);
Result<Fd> open_blob(const std::string& folder, const Digest& digest);

// The last words of a failed skopeo as an error that says what to do; separate for its tests.
Error explain_skopeo_failure(std::string_view reference, std::string_view last_line);

}  // namespace sandbox
