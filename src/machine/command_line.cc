// What stands here and why (QEMU 7.2):
//   * q35 without what nobody uses (hpet, smbus, sata, usb): quicker to start, less to attack.
//   * -cpu max,-erms: emulated "rep movsb" is four times slower than a loop of moves.
//   * tb-size bounds the cache of translated code, which otherwise may grow to 1 GiB.
//   * Guest memory is a memfd shared with QEMU, opened through /proc/self/fd: mem-path does
//     not understand /dev/fdset.
//   * Disks come through /dev/fdset. Backing files are named as nodes, so no path in a qcow2
//     header is ever opened. A free slot is a null-co node: the guest's controller must exist
//     in every machine of a shape.
//   * cache.no-flush: a disk that dies with its sandbox need not survive a crash of the host.
//   * The console is a pipe and not a socket: the serial port writes byte by byte, and of
//     messages of one byte a socket holds 277 before it blocks the guest, a pipe 65536.
//     append=on, or QEMU would truncate it, which a pipe refuses.
//   * rcu_expedited: mounts, namespaces and network devices wait for grace periods, which are a
//     matter of ticks otherwise; expedited ones cost interrupts on a few virtual processors.
//   * free-page-reporting returns memory that the guest freed.
//   * -sandbox: QEMU's own seccomp filter, everything it offers.

#include "machine/command_line.h"

#include <fmt/format.h>

#include <cstdlib>

namespace sandbox {

const char* const kKernelCommandLine =
    "console=ttyS0 quiet panic=-1 reboot=t nowatchdog rcupdate.rcu_expedited=1";

namespace {

constexpr unsigned kTranslationCacheMib = 64;
constexpr unsigned kConsoleSet = 100;  // disks have 1 to 2 * kDiskSlots

class Arguments {
 public:
  void add(std::string option) { words_.push_back(std::move(option)); }
  void add(std::string option, std::string value) {
    words_.push_back(std::move(option));
    words_.push_back(std::move(value));
  }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void add_machine(Arguments& out, const MachineShape& shape, int ram) {
  out.add("-M", "q35,hpet=off,smbus=off,sata=off,usb=off,memory-backend=mem");
  if (shape.accel == Accel::kKvm) {
    out.add("-accel", "kvm");
    out.add("-cpu", "host");
  } else {
    out.add("-accel", fmt::format("tcg,thread=multi,tb-size={}", kTranslationCacheMib));
    out.add("-cpu", "max,-erms");
  }
  out.add("-m", fmt::format("{}M", shape.memory_mib));
  out.add("-smp", fmt::format("{}", shape.cpus));
  out.add("-object",
          fmt::format("memory-backend-file,id=mem,size={}M,mem-path=/proc/self/fd/{},share=on",
                      shape.memory_mib, ram));
  out.add("-nodefaults");
  out.add("-no-user-config");
  out.add("-no-reboot");
  out.add("-display", "none");
  out.add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
}

void add_wires(Arguments& out, const QemuFds& fds) {
  out.add("-chardev", fmt::format("socket,id=qmp,fd={}", fds.qmp));
  out.add("-mon", "chardev=qmp,mode=control");
  out.add("-add-fd", fmt::format("fd={},set={}", fds.console, kConsoleSet));
  out.add("-chardev", fmt::format("file,id=console,path=/dev/fdset/{},append=on", kConsoleSet));
  out.add("-serial", "chardev:console");
  out.add("-netdev", fmt::format("stream,id=net,server=off,addr.type=fd,addr.str={}", fds.network));
  out.add("-device", fmt::format("virtio-net-pci,netdev=net,mac={},romfile=", kTemplateMac));
  out.add("-device", "virtio-serial-pci");
  out.add("-chardev", fmt::format("socket,id=ctl,fd={}", fds.ctl));
  out.add("-device", "virtserialport,chardev=ctl,name=sandbox.ctl.0,nr=1");
  out.add("-chardev", fmt::format("socket,id=fs,fd={}", fds.fs));
  out.add("-device", "virtserialport,chardev=fs,name=sandbox.fs.0,nr=2");
}

std::string file_node(const std::string& name, int set, bool read_only) {
  return fmt::format(
      R"({{"driver":"file","node-name":"{}","filename":"/dev/fdset/{}","read-only":{},"discard":"unmap"}})",
      name, set, read_only);
}

// Returns the name of the node the guest's controller gets.
std::string add_overlay(Arguments& out, unsigned slot, const QemuDisk& disk) {
  const unsigned overlay_set = 2 * slot + 1;
  const unsigned base_set = 2 * slot + 2;
  std::string backing = "null";
  if (disk.base >= 0) {
    out.add("-add-fd", fmt::format("fd={},set={}", disk.base, base_set));
    out.add("-blockdev",
            file_node(fmt::format("basefile{}", slot), static_cast<int>(base_set), true));
    out.add("-blockdev",
            fmt::format(
                R"({{"driver":"raw","node-name":"base{0}","file":"basefile{0}","read-only":true}})",
                slot));
    backing = fmt::format("\"base{}\"", slot);
  }
  out.add("-add-fd", fmt::format("fd={},set={}", disk.overlay, overlay_set));
  out.add("-blockdev",
          file_node(fmt::format("overlayfile{}", slot), static_cast<int>(overlay_set), false));
  out.add(
      "-blockdev",
      fmt::format(
          R"({{"driver":"qcow2","node-name":"disk{0}","file":"overlayfile{0}","backing":{1},"discard":"unmap","cache":{{"no-flush":{2}}}}})",
          slot, backing, !disk.durable));
  return fmt::format("disk{}", slot);
}

std::string add_null(Arguments& out, unsigned slot) {
  out.add("-blockdev",
          fmt::format(R"({{"driver":"null-co","node-name":"disk{}","size":{},"read-zeroes":true}})",
                      slot, kDiskBytes));
  return fmt::format("disk{}", slot);
}

void add_disks(Arguments& out, const std::vector<QemuDisk>& disks) {
  if (disks.size() > kDiskSlots) std::abort();
  for (unsigned slot = 0; slot < kDiskSlots; ++slot) {
    const std::string node =
        slot < disks.size() ? add_overlay(out, slot, disks[slot]) : add_null(out, slot);
    // Sector sizes are given, or QEMU would take them from whatever file system the disk lies on.
    out.add("-device",
            fmt::format("virtio-blk-pci,drive={},logical_block_size=512,physical_block_size=4096",
                        node));
  }
}

void add_boot(Arguments& out, const BootFrom& boot) {
  if (const auto* kernel = std::get_if<FromKernel>(&boot)) {
    out.add("-kernel", fmt::format("/proc/self/fd/{}", kernel->kernel));
    out.add("-initrd", fmt::format("/proc/self/fd/{}", kernel->initrd));
    out.add("-append", kKernelCommandLine);
  } else {
    out.add("-incoming", "defer");
  }
}

}  // namespace

std::vector<std::string> qemu_arguments(const MachineShape& shape, const QemuFds& fds,
                                        const BootFrom& boot) {
  Arguments out;
  add_machine(out, shape, fds.ram);
  add_wires(out, fds);
  add_disks(out, fds.disks);
  out.add("-object", "rng-builtin,id=rng");
  out.add("-device", "virtio-rng-pci,rng=rng");
  out.add("-device", "virtio-balloon-pci,free-page-reporting=on");
  add_boot(out, boot);
  return out.take();
}

}  // namespace sandbox
