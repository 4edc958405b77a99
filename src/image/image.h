#pragma once
// An image as the rest of the program sees it: a disk file to put an overlay on, and what its
// author wanted to run.

#include <cstdint>
#include <string>
#include <vector>

namespace sandbox {

// The part of an OCI image configuration that concerns a start (image-spec config.md); all of it
// optional there.
struct ImageConfig {
  std::vector<std::string> entrypoint;
  std::vector<std::string> cmd;
  std::vector<std::string> env;  // "K=V"
  std::string workdir;           // absolute, or empty
  std::string user;  // "name", "uid", "name:group", "uid:gid"; empty: the image names none
};

struct Image {
  std::string reference;  // normalised: "docker.io/library/debian:bookworm-slim", "builtin"
  std::string id;         // "sha256:<64 hex>": digest of the configuration blob, docker's IMAGE ID
  std::string disk_path;  // a raw ext4 file system of kImageDiskBytes, sparse, mode 0600, never
                          // written after it was made
  ImageConfig config;
  uint64_t disk_bytes = 0;  // allocated on the host
  int64_t created_ns = 0;   // when the disk was made here; wall clock, nanoseconds
};

// Every disk has this virtual size, so that one boot state fits all of them.
inline constexpr uint64_t kImageDiskBytes = uint64_t{64} << 30;

}  // namespace sandbox
