#pragma once
// The guest's kernel: Debian's 6.12 cloud kernel, downloaded through apt with apt's own signature
// checks, unpacked below kernel/, never installed on the host.
//
//   kernel/VERSION/vmlinux       uncompressed ELF with a PVH entry: needs no boot loader
//   kernel/VERSION/modules/*.ko  what the guest needs and the kernel has not built in
//   kernel/VERSION/record.json   package, version, digests
//   kernel/current               names VERSION
//   kernel/known-digests         see known_digests.h

#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "store/home.h"

namespace sandbox {

struct KernelModule {
  std::string file;    // "virtio_blk.ko"
  std::string path;    // on the host
  std::string sha256;  // hex
};

struct Kernel {
  std::string version;                // "6.12.117+deb12-cloud-amd64", what uname -r prints inside
  std::string package;                // "linux-image-6.12.117+deb12-cloud-amd64 6.12.117-1~deb12u1"
  std::string vmlinux;                // path
  std::string sha256;                 // of vmlinux, hex
  std::vector<KernelModule> modules;  // in the order in which they must be loaded
};

// kNotFound with a hint when there is none; kTampered when a file differs from its record.
Result<Kernel> installed_kernel(const Home& home);
// All of them, newest last; unreadable ones are left out.
std::vector<Kernel> installed_kernels(const Home& home);

// Resolves the package through apt and downloads it (as any user), or takes `deb`; replaces the
// current kernel.
Result<Kernel> install_kernel(const Home& home, Progress& progress,
                              const std::optional<std::string>& deb = std::nullopt);

}  // namespace sandbox
