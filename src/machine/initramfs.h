#pragma once
// The guest's first file system: sentry, the modules it loads, the few nodes the kernel itself
// opens. The same inputs give the same bytes, because boot states are keyed by them.
//
//   /init            sandbox-sentry
//   /modules/order   file names, one a line, in load order     /modules/*.ko
//   /dev/console /dev/null and the empty directories sentry mounts on

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "machine/kernel.h"

namespace sandbox {

// An archive in cpio "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst of
// the kernel): a 110-byte header of ASCII hexadecimal per entry, everything padded to 4 bytes,
// closed by TRAILER!!!.
class CpioWriter {
 public:
  void directory(std::string_view path, unsigned mode = 0755);
  void file(std::string_view path, unsigned mode, ByteView content);
  void character_device(std::string_view path, unsigned mode, unsigned major, unsigned minor);
  Bytes finish();

 private:
  struct Entry;
  void entry(std::string_view path, const Entry& e, ByteView content);
  ByteWriter out_;
  uint32_t next_inode_ = 1;
};

inline constexpr int kInitramfsLayout =
    1;  // raise with every change of what build_initramfs writes around its inputs

Result<Bytes> build_initramfs(const Kernel& kernel, const std::string& sentry_path);

}  // namespace sandbox
