// sandbox kernel install, sandbox kernel ls: the kernel inside.

#include "machine/kernel.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/words.h"
#include "store/home.h"

namespace sandbox::cli {

namespace {

constexpr std::string_view kInstallManual = R"(sandbox kernel install [--from FILE.deb]

Fetch the kernel that runs inside every sandbox: Debian's 6.12 cloud kernel, about 35 MB, through
this machine's apt with its signature checks. It is unpacked below ~/.sandbox/kernel and never
installed on this machine. Run it again for security updates; sandboxes that run keep theirs.

  sandbox kernel install
  sandbox kernel install --from linux-image-6.12.117+deb12-cloud-amd64_6.12.117-1~deb12u1_amd64.deb

  --from FILE   unpack this package instead, on a machine whose apt does not have it
)";

constexpr std::string_view kLsManual = R"(sandbox kernel ls

The kernels that are unpacked here; '*' marks the one new sandboxes get.

  sandbox kernel ls
)";

constexpr size_t kDigestShown = 12;

int run_install(std::vector<std::string> args) {
  CLI::App app;
  std::optional<std::string> from;
  app.add_option("--from", from);
  if (const auto status = parse_words(app, "kernel install", std::move(args)); !status)
    return fail_with(status.error(), kUsage);
  const auto home = Home::open();
  if (!home) return fail_with(home.error(), kFailed);
  auto progress = make_progress();
  const auto kernel = install_kernel(*home, *progress, from);
  progress.reset();
  if (!kernel) return fail_with(kernel.error(), kFailed);
  fmt::print("{}  sha256:{}\n", kernel->version, kernel->sha256);
  return kDone;
}

int run_ls(std::vector<std::string> args) {
  if (!args.empty()) return usage_error("kernel ls", fmt::format("unexpected word '{}'", args[0]));
  const auto home = Home::open();
  if (!home) return fail_with(home.error(), kFailed);
  const auto current = installed_kernel(*home);
  if (!current) return fail_with(current.error(), kFailed);
  fmt::print("  {:<32} {:<14} PACKAGE\n", "VERSION", "SHA256");
  for (const Kernel& kernel : installed_kernels(*home))
    fmt::print("{} {:<32} {:<14} {}\n", kernel.version == current->version ? '*' : ' ',
               kernel.version, kernel.sha256.substr(0, kDigestShown), kernel.package);
  return kDone;
}

}  // namespace

extern const Command kKernelInstall;
const Command kKernelInstall{"kernel install", "fetch the kernel that runs inside", kInstallManual,
                             run_install};
extern const Command kKernelLs;
const Command kKernelLs{"kernel ls", "the kernels fetched so far", kLsManual, run_ls};

}  // namespace sandbox::cli
