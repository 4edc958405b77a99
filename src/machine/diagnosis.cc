#include "machine/diagnosis.h"

#include <sys/wait.h>

#include <csignal>
#include <vector>

#include "base/process.h"
#include "base/text.h"

namespace sandbox {

namespace {

struct Pattern {
  std::string_view words;  // in QEMU's or the launcher's stderr
  Code code;
  std::string_view message;
  std::string_view hint;
};

// The first that matches counts. QEMU's wording as of 7.2.
constexpr Pattern kPatterns[] = {
    {"sandbox-launcher: unshare:", Code::kPermission,
     "this machine does not let users create namespaces",
     "sudo sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000 (and, where it "
     "exists, kernel.apparmor_restrict_unprivileged_userns=0); in a plain chroot nobody may: enter "
     "it by pivot_root, as systemd-nspawn and containers do"},
    {"sandbox-launcher: /proc/self/uid_map:", Code::kPermission,
     "this machine does not let users create namespaces",
     "where it exists: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
    {"Could not access KVM kernel module: Permission denied", Code::kPermission,
     "/dev/kvm may not be opened by this user", "sudo adduser $USER kvm, then log in again"},
    {"Could not access KVM kernel module", Code::kUnavailable, "/dev/kvm cannot be used",
     "sandbox doctor"},
    {"ioctl(KVM_CREATE_VM) failed", Code::kUnavailable, "/dev/kvm refuses to create a VM",
     "sandbox doctor"},
    {"cannot set up guest memory", Code::kLimit, "not enough memory for this sandbox",
     "use a smaller --memory, or stop other sandboxes"},
    {"Cannot allocate memory", Code::kLimit, "not enough memory for this sandbox",
     "use a smaller --memory, or stop other sandboxes"},
    {"Failed to get \"write\" lock", Code::kExists, "the disk is in use by another machine",
     "sandbox ls shows what runs"},
    {"load of migration failed", Code::kTampered, "the boot state does not load",
     "it is made again when it is removed: rm -r the folder boot in ~/.sandbox"},
    {"Not a migration stream", Code::kTampered, "the boot state does not load",
     "it is made again when it is removed: rm -r the folder boot in ~/.sandbox"},
    {"error while loading shared libraries", Code::kUnavailable, "QEMU lacks a library",
     "sudo apt-get install --reinstall qemu-system-x86"},
    {"could not load PC BIOS", Code::kUnavailable, "QEMU lacks its firmware",
     "sudo apt-get install --reinstall seabios qemu-system-data"},
};

std::string last_lines(std::string_view text, size_t count) {
  std::vector<std::string_view> lines;
  for (const std::string_view line : split(text, '\n'))
    if (!trim(line).empty()) lines.push_back(trim(line));
  std::string out;
  for (size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i)
    out += (out.empty() ? "" : " | ") + escape_terminal(lines[i]);
  return out;
}

// From the panic message on: what follows it is the reason and the trace.
std::optional<std::string> panic_of(std::string_view console) {
  const size_t at = console.rfind("Kernel panic");
  if (at == console.npos) return std::nullopt;
  const std::string_view rest = console.substr(at);
  return escape_terminal(trim(rest.substr(0, rest.find('\n'))));
}

// The launcher passes QEMU's death by a signal on as 128+n.
std::optional<int> signal_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return WTERMSIG(wait_status);
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) > 128)
    return WEXITSTATUS(wait_status) - 128;
  return std::nullopt;
}

std::optional<Error> from_signal(int number) {
  if (number == SIGSYS)
    return Error{Code::kInternal, "QEMU was killed for a system call that its filter forbids", {}};
  if (number == SIGKILL)
    return Error{Code::kIo, "QEMU was killed",
                 "if nobody did: the machine may have run out of memory (dmesg)"};
  if (number == SIGBUS)
    return Error{Code::kLimit, "QEMU ran out of memory for the guest (SIGBUS)",
                 "use a smaller --memory, or stop other sandboxes"};
  return std::nullopt;
}

Error explain(const MachineEvidence& evidence) {
  if (auto panic = panic_of(evidence.console_tail))
    return {Code::kUnavailable, fmt::format("the guest's kernel gave up: {}", *panic), {}};
  for (const Pattern& pattern : kPatterns)
    if (evidence.stderr_text.find(pattern.words) != std::string::npos)
      return {pattern.code,
              fmt::format("{} ({})", pattern.message, last_lines(evidence.stderr_text, 1)),
              std::string(pattern.hint)};
  if (evidence.wait_status)
    if (const auto number = signal_of(*evidence.wait_status))
      if (auto error = from_signal(*number)) return *error;
  if (evidence.shutdown_reason == "guest-reset")
    return {Code::kUnavailable, "the guest reset itself", {}};
  const std::string said = last_lines(evidence.stderr_text, 3);
  if (!said.empty()) return {Code::kUnavailable, fmt::format("QEMU ended: {}", said), {}};
  if (evidence.other) return *evidence.other;
  if (evidence.wait_status)
    return {Code::kUnavailable,
            fmt::format("QEMU ended ({})", describe_wait_status(*evidence.wait_status)),
            {}};
  return {Code::kInternal, "no reason was found", {}};
}

}  // namespace

Error diagnose(std::string_view doing, const MachineEvidence& evidence) {
  return explain(evidence).while_doing(doing);
}

}  // namespace sandbox
