// sandbox-sentry: the guest's first and only process of ours. See sentry.h for what it does and
// workload.h for what it holds apart.
//
// It must never end while the machine runs (the kernel panics when PID 1 does); every way out below
// switches the machine off. A panic, on the other hand, shows on the console and makes QEMU report
// a reset: that is how a crash of sentry looks from outside.

#include <sys/reboot.h>
#include <unistd.h>

#include "base/log.h"
#include "guest/boot.h"
#include "guest/sentry.h"

namespace {

using namespace sandbox;  // NOLINT: a main

[[noreturn]] void power_off() {
  ::sync();
  (void)::reboot(RB_POWER_OFF);
  while (true) ::pause();
}

Status run() {
  ASSIGN(guest::Booted booted, guest::boot());
  ASSIGN(const auto sentry, guest::Sentry::create(std::move(booted)));
  sentry->run();
  return {};
}

}  // namespace

int main() {
  log::set_program("sandbox-sentry");
  if (::getpid() != 1) {
    log::line("this program is the first process of a sandbox's machine and nothing else");
    return 2;
  }
  if (const Status ran = run(); !ran) log::line(ran.error().message);
  power_off();
}
