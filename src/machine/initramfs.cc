#include "machine/initramfs.h"

#include <array>

#include "base/file.h"

namespace sandbox {

namespace {

constexpr unsigned kDirectory = 0040000;
constexpr unsigned kRegular = 0100000;
constexpr unsigned kCharacter = 0020000;

}  // namespace

struct CpioWriter::Entry {
  unsigned mode = 0;
  unsigned links = 1;
  unsigned device_major = 0;
  unsigned device_minor = 0;
};

void CpioWriter::entry(std::string_view path, const Entry& e, ByteView content) {
  const auto pad = [this] { out_.zeros((4 - out_.size() % 4) % 4); };
  const std::array<uint32_t, 13> fields = {
      next_inode_++,
      e.mode,
      0,  // uid
      0,  // gid
      e.links,
      0,  // mtime: the archive must not depend on when it was made
      static_cast<uint32_t>(content.size()),
      0,  // device the file was on
      0,
      e.device_major,
      e.device_minor,
      static_cast<uint32_t>(path.size() + 1),
      0,  // checksum, unused in this variant
  };
  out_.text("070701");
  for (const uint32_t field : fields) out_.text(fmt::format("{:08x}", field));
  out_.text(path);
  out_.u8(0);
  pad();
  out_.bytes(content);
  pad();
}

void CpioWriter::directory(std::string_view path, unsigned mode) {
  entry(path, {.mode = kDirectory | mode, .links = 2}, {});
}

void CpioWriter::file(std::string_view path, unsigned mode, ByteView content) {
  entry(path, {.mode = kRegular | mode}, content);
}

void CpioWriter::character_device(std::string_view path, unsigned mode, unsigned major,
                                  unsigned minor) {
  entry(path, {.mode = kCharacter | mode, .device_major = major, .device_minor = minor}, {});
}

Bytes CpioWriter::finish() {
  next_inode_ = 0;
  entry("TRAILER!!!", {}, {});
  return out_.take();
}

Result<Bytes> build_initramfs(const Kernel& kernel, const std::string& sentry_path) {
  ASSIGN(const std::string sentry, read_file(sentry_path));
  CpioWriter archive;
  for (const char* path : {"dev", "proc", "sys", "run", "tmp", "mnt", "modules"})
    archive.directory(path);
  archive.character_device("dev/console", 0600, 5, 1);
  archive.character_device("dev/null", 0666, 1, 3);
  archive.file("init", 0755, as_bytes(sentry));
  std::string order;
  for (const KernelModule& module : kernel.modules) {
    ASSIGN(const std::string content, read_file(module.path));
    archive.file("modules/" + module.file, 0644, as_bytes(content));
    order += module.file + "\n";
  }
  archive.file("modules/order", 0644, as_bytes(order));
  return archive.finish();
}

}  // namespace sandbox
