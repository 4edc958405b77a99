#pragma once
// Guest memory as files. A sandbox's memory is a memfd of its own: the boot state's file must never
// be given to QEMU, which opens it for writing even for a private mapping, and whose balloon
// punches holes into it.

#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

// A memfd of `bytes`, all holes, that can be neither shrunk nor grown: a truncation under a running
// VM would be a SIGBUS.
Result<Fd> new_guest_memory(uint64_t bytes);

// Copies what is not a hole; the target must be all holes, of at least the same size. With
// drop_zero_pages, pages of zeros stay holes as well. Uses pread and pwrite, but moves the position
// of `from` (SEEK_DATA).
Status copy_sparse(int from, int to, uint64_t bytes, bool drop_zero_pages);

}  // namespace sandbox
