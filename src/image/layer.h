#pragma once
// Reads one layer blob into the tree and the sink, in a single pass:
//
//   blob ──SHA-256, size──► gunzip / unzstd / as is ──SHA-256──► tar ──► FileTree (names),
//   ContentSink (bytes)
//
// The first digest is checked against the descriptor in the manifest, the second against the
// diff_id in the configuration, both over the whole stream, also when the tar ends early or makes
// no sense: a blob that is not what was promised is Code::kTampered rather than whatever its
// damaged bytes look like. Until this returns success nothing read is to be trusted; the caller
// then throws the disk away.
//
// Decompression runs in a thread of its own, since it takes about as long as all the rest.

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/progress.h"
#include "base/result.h"
#include "image/content_sink.h"
#include "image/file_tree.h"
#include "image/oci.h"

namespace sandbox {

struct LayerInput {
  int fd = -1;  // borrowed, read from its position to the end
  Descriptor blob;
  Digest diff_id;
  std::string label;  // "layer 2 of 5 (sha256:…)", for messages
};

// What all layers of an image share: how much they may unpack to, and how far the work is.
struct LayerBudget {
  uint64_t uncompressed_left = 0;  // bytes of tar stream
  uint64_t blob_done = 0;          // bytes of blobs read, for progress
  uint64_t blob_total = 0;
};

// A blob may grow by this factor; deflate cannot do more than 1032, and zstd has no limit.
inline constexpr uint64_t kMaxExpansion = 1100;
// Below this many bytes of tar stream, any factor is fine.
inline constexpr uint64_t kFreeExpansion = 1ULL << 30;

// Loads what reading a layer otherwise loads from the host's files on first use (character
// conversion), so that a process may give up files before it reads layers. Affects the calling
// thread and those it starts.
void prepare_to_read_layers();

Status read_layer(const LayerInput& layer, FileTree& tree, ContentSink& sink, LayerBudget& budget,
                  Progress& progress);

}  // namespace sandbox
