#pragma once
// What is inside a Debian kernel package. A .deb is an ar archive whose member data.tar.* holds the
// files; both layers and every compression are read through libarchive, so this works on hosts
// without dpkg.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/progress.h"
#include "base/result.h"

namespace sandbox {

struct UnpackedModule {
  std::string file;  // "virtio_blk.ko"
  Bytes content;
};

struct UnpackedKernel {
  std::string version;  // from boot/vmlinuz-VERSION
  Bytes vmlinux;
  std::vector<UnpackedModule> modules;  // dependencies before what needs them
};

// What the guest needs and Debian's cloud kernel has as modules. ext4, FUSE, virtio's core, PCI and
// console are built in.
extern const std::vector<std::string_view> kGuestModules;

// `wanted` by name, "virtio-rng" and "virtio_rng" being the same; what they depend on is added. A
// wanted module that the package lacks is an error.
Result<UnpackedKernel> unpack_kernel_package(const std::string& deb,
                                             const std::vector<std::string_view>& wanted,
                                             Progress& progress);

// The ELF inside a bzImage (Documentation/arch/x86/boot.rst of the kernel: payload_offset,
// payload_length).
Result<Bytes> kernel_payload(ByteView bzimage);
// True when the ELF has the note by which QEMU finds the 32-bit PVH entry.
bool has_pvh_entry(ByteView elf);
// "depends=" of the section .modinfo: names, possibly none.
Result<std::vector<std::string>> module_dependencies(ByteView ko);
// Orders names so that each comes after its dependencies; names outside the map are ignored.
// kInvalid for a cycle.
Result<std::vector<std::string>> load_order(
    const std::map<std::string, std::vector<std::string>>& dependencies);
// One compressed stream of any kind libarchive knows; what follows it is ignored.
Result<Bytes> decompress(ByteView compressed, size_t limit);

}  // namespace sandbox
