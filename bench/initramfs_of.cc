// A machine's first file system with another first process, for bench/machine_network.py.
//
//   initramfs_of INIT OUT     writes the initramfs with INIT as /init to OUT; prints the path of
//   the
//                             installed kernel
//
// The kernel is the one in $SANDBOX_HOME.

#include <cstdio>

#include "base/file.h"
#include "base/log.h"
#include "machine/initramfs.h"
#include "machine/kernel.h"
#include "store/home.h"

namespace sandbox {
namespace {

Status write_initramfs(const char* init, const char* out) {
  ASSIGN(const Home home, Home::open());
  ASSIGN(const Kernel kernel, installed_kernel(home));
  ASSIGN(const Bytes initramfs, build_initramfs(kernel, init));
  TRY(write_file_atomic(out, as_text(initramfs)));
  std::puts(kernel.vmlinux.c_str());
  return {};
}

}  // namespace
}  // namespace sandbox

int main(int argc, char** argv) {
  sandbox::log::set_program("initramfs_of");
  if (argc != 3) {
    sandbox::log::line("usage: initramfs_of INIT OUT");
    return 2;
  }
  const sandbox::Status written = sandbox::write_initramfs(argv[1], argv[2]);
  if (!written) sandbox::log::line(written.error().message);
  return written ? 0 : 1;
}
