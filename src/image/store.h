#pragma once
// The images of one user, under ~/.sandbox/images:
//
//   refs/KEY.json        what a reference means: id, configuration, times. KEY is the SHA-256 of
//                        the reference's text
//   refs/KEY.json.lock   held, and there, while that reference is pulled or built
//   disks/HEX.ext4       the disk of the image with that id; several references may share it
//   tmp/XXXXXX/          one pull or build in progress, with a lock that its process holds
//
// A lock file or a folder of tmp/ whose lock is free was left by a killed process; whoever opens
// the store next removes it.
//
// A disk and a reference appear by rename when everything about them was verified. Layers are not
// kept: the disk has what they held.

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/progress.h"
#include "base/result.h"
#include "image/image.h"
#include "image/reference.h"
#include "store/home.h"

namespace sandbox {

// The name under which the built-in image is kept and run.
inline constexpr std::string_view kBuiltinImage = "builtin";

class ImageStore {
 public:
  static Result<ImageStore> open(const Home& home);

  // What is here, pulled or built first when it is not. With the image here, costs one small file
  // read whatever its size. `reference` is what the user wrote; "builtin" is the built-in image.
  Result<Image> ensure(std::string_view reference, Progress& progress);
  // Asks the registry even when the image is here; downloads when the registry has another one.
  Result<Image> pull(std::string_view reference, Progress& progress);
  // The built-in image, made from this machine's own package sources when missing or when
  // `rebuild`.
  Result<Image> ensure_builtin(Progress& progress, bool rebuild = false);

  // By reference; an image whose disk is gone is not listed.
  [[nodiscard]] Result<std::vector<Image>> list() const;
  // By reference or by id (at least 4 hex digits of it). kNotFound, or kExists when a running
  // sandbox has the disk open. Returns the bytes freed: 0 when another reference still names the
  // same disk.
  Result<uint64_t> remove(std::string_view reference_or_id);

  // The disk for a running sandbox: read-only, with a shared flock that lives as long as the open
  // file description does (duplicates in other processes included) and that remove() respects.
  [[nodiscard]] static Result<Fd> open_base(const Image& image);

 private:
  explicit ImageStore(std::string root) : root_(std::move(root)) {}
  class ReferenceLock;
  class Workspace;

  [[nodiscard]] std::string ref_path(std::string_view reference) const;
  [[nodiscard]] std::string disk_path(std::string_view id) const;
  [[nodiscard]] Result<Image> find(std::string_view reference) const;
  Result<Image> fetch(const ImageReference& reference, Progress& progress);
  Result<Image> build_builtin(const std::string& recipe, Progress& progress);
  Result<Image> publish(Image image, const std::string& new_disk, std::string_view recipe);
  Result<uint64_t> drop_unreferenced_disks();

  std::string root_;
};

}  // namespace sandbox
