#include "image/builtin.h"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <tuple>

#include "base/fd.h"
#include "base/file.h"
#include "base/process.h"
#include "base/text.h"
#include "image/watched_program.h"

namespace sandbox {

namespace {

constexpr int kRecipeVersion = 3;

// A word of a source line: what apt itself prints, but a line break in it would be another source.
bool is_plain_word(std::string_view word) {
  return !word.empty() && word.find_first_of(" \t\r\n[]\"'\\") == std::string_view::npos;
}

Result<std::string> host_codename() {
  ASSIGN(const std::string release, read_file("/etc/os-release", 1U << 16));
  for (const std::string_view line : split(release, '\n')) {
    static constexpr std::string_view kKey = "VERSION_CODENAME=";
    if (!line.starts_with(kKey)) continue;
    std::string name(trim(line.substr(kKey.size())));
    std::erase(name, '"');
    if (is_plain_word(name)) return name;
  }
  return fail(Error{Code::kUnavailable, "/etc/os-release names no Debian or Ubuntu release",
                    "the built-in image is made from this machine's apt sources; run an image "
                    "from a registry instead, like: sandbox run debian:bookworm-slim"});
}

tl::unexpected<Error> fail_no_tool(std::string_view tool) {
  return fail(Error{Code::kUnavailable,
                    fmt::format("{}, which makes the built-in image, is not installed", tool),
                    fmt::format("apt-get install {}", tool == "apt-get" ? "apt" : tool)});
}

// Whether the user told apt not to verify this source. apt's own "Trusted" field also says yes
// where it did verify, so the entry itself is looked at: "FILE:LINE" of a one-line file, or of a
// deb822 file, of which any stanza counts.
bool is_trusted_by_word(std::string_view entry) {
  const size_t colon = entry.rfind(':');
  if (colon == std::string_view::npos) return false;
  const auto line = parse_decimal(entry.substr(colon + 1));
  const auto content = read_file(std::string(entry.substr(0, colon)), 1U << 20);
  if (!line || !content) return false;
  const std::string text = to_lower(*content);
  const auto lines = split(text, '\n');
  if (!entry.substr(0, colon).ends_with(".sources"))
    return *line >= 1 && *line <= lines.size() &&
           lines[*line - 1].find("trusted=yes") != std::string_view::npos;
  return std::any_of(lines.begin(), lines.end(), [](std::string_view field) {
    return field.starts_with("trusted:") && trim(field.substr(8)) == "yes";
  });
}

// One-line sources for the release this machine runs, asked from apt: whatever the form of its
// files, its mirrors and its trust options. Sources of other vendors stay out: their suites are not
// the release's.
Result<std::vector<std::string>> host_sources(const std::string& codename) {
  if (!find_in_path("apt-get")) return fail_no_tool("apt-get");
  ASSIGN(const Output out,
         run_program({"apt-get", "indextargets", "--format",
                      "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)|$(SOURCESENTRY)",
                      "Created-By: Packages", "Target-Of: deb"}));
  if (out.exit_code != 0)
    return fail(Code::kUnavailable, "apt-get indextargets failed: {}",
                escape_terminal(trim(out.err)));
  std::set<std::string> lines;
  for (const std::string_view target : split(out.out, '\n')) {
    const auto fields = split(target, '|');
    if (fields.size() != 5) continue;
    const auto [uri, suite, component, key, entry] =
        std::tuple(fields[0], fields[1], fields[2], fields[3], fields[4]);
    const std::string_view pocket = suite.substr(std::min(codename.size(), suite.size()));
    const bool ours = suite.starts_with(codename) &&
                      (pocket.empty() || pocket == "-updates" || pocket == "-security");
    if (!ours || !is_plain_word(uri) || !is_plain_word(suite) || !is_plain_word(component))
      continue;
    std::string options;
    // A field that apt has nothing for stays as it was asked.
    if (is_plain_word(key) && !key.starts_with("$(")) options += fmt::format(" signed-by={}", key);
    if (is_trusted_by_word(entry)) options += " trusted=yes";
    lines.insert(fmt::format("deb {}{} {} {}",
                             options.empty() ? "" : fmt::format("[{}] ", trim(options)), uri, suite,
                             component));
  }
  if (lines.empty())
    return fail(Error{Code::kUnavailable,
                      fmt::format("apt has no source for {} on this machine", codename),
                      "check /etc/apt/sources.list, then run apt-get update"});
  return std::vector<std::string>(lines.begin(), lines.end());
}

// The Acquire settings of this machine (proxies, time checks, retries, insecure-repository
// switches). Downloading with them is what works here; which indexes apt would like, and for whom,
// is not the image's matter.
Result<std::vector<std::string>> host_acquire_settings() {
  ASSIGN(const Output out, run_program({"apt-config", "dump"}));
  if (out.exit_code != 0)
    return fail(Code::kUnavailable, "apt-config dump failed: {}", escape_terminal(trim(out.err)));
  static constexpr std::array<std::string_view, 4> kNotOurs = {
      "Acquire::IndexTargets", "Acquire::Changelogs", "Acquire::cdrom",
      "Acquire::CompressionTypes"};
  std::vector<std::string> settings;
  for (const std::string_view line : split(out.out, '\n')) {
    const bool skipped = std::any_of(kNotOurs.begin(), kNotOurs.end(),
                                     [&](std::string_view name) { return line.starts_with(name); });
    if (!line.starts_with("Acquire::") || skipped || line.ends_with(" \"\";")) continue;
    settings.emplace_back(line);
  }
  return settings;
}

bool has_sub_ids(const char* path) {
  const passwd* user = ::getpwuid(::geteuid());
  const auto content = read_file(path, 1U << 20);
  if (!content) return false;
  for (const std::string_view line : split(*content, '\n')) {
    const std::string_view owner = line.substr(0, line.find(':'));
    if (owner.empty()) continue;
    if (user != nullptr && owner == user->pw_name) return true;
    if (owner == std::to_string(::geteuid())) return true;
  }
  return false;
}

Result<std::string> choose_mode() {
  if (::geteuid() == 0) return std::string("root");
  if (find_in_path("newuidmap") && has_sub_ids("/etc/subuid") && has_sub_ids("/etc/subgid"))
    return std::string("unshare");
  if (find_in_path("fakechroot") && find_in_path("fakeroot")) return std::string("fakechroot");
  return fail(Error{Code::kUnavailable,
                    "making the built-in image without root needs newuidmap and a range of "
                    "sub-ids for you in /etc/subuid and /etc/subgid",
                    "apt-get install uidmap, then usermod --add-subuids 100000-165535 "
                    "--add-subgids 100000-165535 $USER; or apt-get install fakechroot fakeroot"});
}

// Runs in the new root by way of mmdebstrap's hook, "$1" being its folder. Written with plain files
// where a program would need the root to be entered.
constexpr std::string_view kCustomize =
    "set -e; "
    "chroot \"$1\" useradd --create-home --uid 1000 --shell /bin/bash agent; "
    "printf 'agent ALL=(ALL:ALL) NOPASSWD: ALL\\n' > \"$1/etc/sudoers.d/agent\"; "
    "chmod 0440 \"$1/etc/sudoers.d/agent\"; "
    "printf 'LANG=C.UTF-8\\n' > \"$1/etc/default/locale\"; "
    "printf 'sandbox\\n' > \"$1/etc/hostname\"; "
    "printf '127.0.0.1 localhost\\n::1 localhost\\n127.0.1.1 sandbox\\n' > \"$1/etc/hosts\"; "
    // apt tries again after a denial as after any failure; it need not wait (docs/decisions/043).
    "printf 'Acquire::Retries::Delay \"false\";\\n' > \"$1/etc/apt/apt.conf.d/90sandbox\"; "
    ": > \"$1/etc/resolv.conf\"; "
    "chmod 0644 \"$1/etc/resolv.conf\"; "
    ": > \"$1/etc/machine-id\"; ";

// "I: installing essential packages..." → "installing essential packages"
std::optional<std::string_view> step_of(std::string_view line) {
  if (!line.starts_with("I: ") || !line.ends_with("...")) return std::nullopt;
  line = line.substr(3, line.size() - 6);
  static constexpr std::array<std::string_view, 7> kWorth = {
      "running apt-get update", "downloading", "extracting", "installing",
      "running --customize",    "cleaning",    "creating"};
  const bool worth = std::any_of(kWorth.begin(), kWorth.end(),
                                 [&](std::string_view start) { return line.starts_with(start); });
  return worth ? std::optional(line) : std::nullopt;
}

Error explain_failure(const WatchedEnd& end) {
  std::string lines;
  std::string hint =
      "the lines quoted are mmdebstrap's own; try it again, or look at sandbox doctor";
  for (const std::string& line : end.tail) {
    lines += (lines.empty() ? "" : " | ") + line;
    if (line.find("Could not resolve") != std::string::npos ||
        line.find("Could not connect") != std::string::npos ||
        line.find("Unable to fetch") != std::string::npos ||
        line.find("Failed to fetch") != std::string::npos)
      hint = "this machine's package sources are not in reach; does apt-get update work?";
    if (line.find("not signed") != std::string::npos || line.find("NO_PUBKEY") != std::string::npos)
      hint = "this machine does not trust its package sources; does apt-get update work?";
    if (line.find("No space left") != std::string::npos)
      hint = "mmdebstrap works in $TMPDIR (else /tmp): about 1 GiB is needed there";
    if (line.find("newuidmap") != std::string::npos || line.find("unshare") != std::string::npos)
      hint = "user namespaces may be forbidden here; sandbox doctor says more";
  }
  return Error{Code::kUnavailable,
               fmt::format("mmdebstrap failed with exit {}: {}", end.exit_code, lines),
               std::move(hint)};
}

}  // namespace

// apt needs them to download for the image; whoever works inside it is not to read them.
const std::string_view kRemoveCredentials =
    "find \"$1/etc/apt\" -type f \\( -name '*.list' -o -name '*.sources' -o -path "
    "'*/apt.conf.d/*' \\) -exec sed -i -E 's,(://)[^/@\"[:space:]]*@,\\1,g' {} +";

const std::vector<std::string>& builtin_packages() {
  static const std::vector<std::string> kPackages = {
      "ca-certificates", "curl", "git", "iproute2", "iputils-ping", "procps", "python3", "sudo"};
  return kPackages;
}

Result<std::string> builtin_recipe() {
  ASSIGN(std::string recipe, host_codename());
  for (const std::string& package : builtin_packages()) recipe += " " + package;
  return fmt::format("{} v{}", recipe, kRecipeVersion);
}

ImageConfig builtin_config() {
  ImageConfig config;
  config.cmd = {"/bin/bash"};
  config.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG=C.UTF-8"};
  config.user = "agent";
  return config;
}

Status make_builtin_root(const std::string& tar_path, Progress& progress) {
  if (!find_in_path("mmdebstrap")) return fail_no_tool("mmdebstrap");
  ASSIGN(const std::string codename, host_codename());
  ASSIGN(const std::vector<std::string> sources, host_sources(codename));
  ASSIGN(const std::vector<std::string> settings, host_acquire_settings());
  ASSIGN(const std::string mode, choose_mode());
  ASSIGN(const Fd tar, open_file(tar_path, O_WRONLY | O_CREAT | O_EXCL));
  std::string packages;
  for (const std::string& package : builtin_packages())
    packages += (packages.empty() ? "" : ",") + package;
  WatchedProgram program;
  program.argv = {"mmdebstrap",
                  "--mode=" + mode,
                  "--variant=minbase",
                  "--format=tar",
                  "--include=" + packages,
                  fmt::format("--customize-hook={}{}", kCustomize, kRemoveCredentials)};
  // Words, not files: in its user namespace mmdebstrap cannot read a private folder of the user's.
  for (const std::string& setting : settings) program.argv.push_back("--aptopt=" + setting);
  program.argv.insert(program.argv.end(), {codename, "-"});
  program.argv.insert(program.argv.end(), sources.begin(), sources.end());
  program.stdout_fd = tar.get();
  program.grace = 20s;  // it unmounts and removes its root when it is told to stop
  program.on_line = [&](std::string_view line) {
    if (const auto step = step_of(line)) progress.step(fmt::format("built-in image: {}", *step));
  };
  progress.step("built-in image: asking apt for its sources");
  ASSIGN(const WatchedEnd end, run_watched(program, progress));
  if (end.exit_code != 0) return fail(explain_failure(end));
  return {};
}

}  // namespace sandbox
