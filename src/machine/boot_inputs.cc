#include "machine/boot_inputs.h"

#include <sys/utsname.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "machine/command_line.h"
#include "machine/initramfs.h"

namespace sandbox {

namespace {

constexpr int kFormat = 1;  // raise when a boot state of the same inputs must not be used any more

// Firmware and code that QEMU reads beside its binary. Some exist in two packages in different
// versions; whichever is there is part of the key.
constexpr const char* kBesideQemu[] = {"share/seabios/bios-256k.bin",
                                       "share/seabios/bios.bin",
                                       "share/qemu/bios-256k.bin",
                                       "share/qemu/kvmvapic.bin",
                                       "share/seabios/linuxboot_dma.bin",
                                       "share/qemu/linuxboot_dma.bin",
                                       "share/qemu/pvh.bin",
                                       "share/seabios/pvh.bin",
                                       "lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so",
                                       "lib64/qemu/accel-tcg-x86_64.so"};

Result<std::string> qemu_lines(const Qemu& qemu, KnownDigests& known) {
  ASSIGN(const std::string binary, known.of(qemu.binary));
  std::string out = fmt::format("qemu {}\n", binary);
  const auto prefix = std::filesystem::path(qemu.binary).parent_path().parent_path();
  for (const char* relative : kBesideQemu) {
    const std::string path = (prefix / relative).string();
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;
    ASSIGN(const std::string digest, known.of(path));
    out += fmt::format("firmware {} {}\n", relative, digest);
  }
  return out;
}

// Under KVM the guest sees the host's processor, through what this kernel's KVM offers of it.
Result<std::string> processor_lines() {
  ASSIGN(const std::string text, read_file("/proc/cpuinfo", 8 << 20));
  std::string first;
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty()) break;
    for (const char* name : {"vendor_id", "cpu family", "model", "stepping", "microcode", "flags"})
      if (line.starts_with(name)) first += fmt::format("{}\n", line);
  }
  utsname host{};
  ::uname(&host);
  return fmt::format("processor {}\nhost-kernel {}\n", sha256_hex(as_bytes(first)), host.release);
}

std::string argument_lines(const MachineShape& shape) {
  // The descriptor numbers do not matter to the guest, the rest does.
  const QemuFds none{0, 0, 0, 0, 0, 0, {}};
  std::string out;
  for (const auto& word : qemu_arguments(shape, none, FromKernel{0, 0}))
    out += fmt::format("argument {}\n", word);
  return out;
}

}  // namespace

Result<std::string> boot_inputs(const BootSpec& spec, KnownDigests& known) {
  std::string out = fmt::format("format {}\ninitramfs-layout {}\n", kFormat, kInitramfsLayout);
  ASSIGN(const std::string sentry, known.of(spec.sentry));
  out += fmt::format("kernel {} {}\nsentry {}\n", spec.kernel.version, spec.kernel.sha256, sentry);
  for (const auto& module : spec.kernel.modules)
    out += fmt::format("module {} {}\n", module.file, module.sha256);
  ASSIGN(const std::string qemu, qemu_lines(spec.qemu, known));
  out += qemu;
  if (spec.shape.accel == Accel::kKvm) {
    ASSIGN(const std::string processor, processor_lines());
    out += processor;
  }
  return out + argument_lines(spec.shape);
}

std::string first_difference(std::string_view before, std::string_view now) {
  const auto old_lines = split(before, '\n');
  const auto new_lines = split(now, '\n');
  for (size_t i = 0; i < std::max(old_lines.size(), new_lines.size()); ++i) {
    const std::string_view a = i < old_lines.size() ? old_lines[i] : "";
    const std::string_view b = i < new_lines.size() ? new_lines[i] : "";
    if (a == b) continue;
    const std::string_view line = b.empty() ? a : b;
    return std::string(line.substr(0, line.find(' ')));
  }
  return "nothing";
}

}  // namespace sandbox
