#include "image/fetch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "image/watched_program.h"

namespace sandbox {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOs = "linux";
#if defined(__aarch64__)
constexpr std::string_view kArchitecture = "arm64";
#else
constexpr std::string_view kArchitecture = "amd64";
#endif

// skopeo refuses to work without a signature policy; a machine that has none has no opinion.
bool has_signature_policy() {
  std::error_code error;
  if (fs::exists("/etc/containers/policy.json", error)) return true;
  const char* home = std::getenv("HOME");
  return home != nullptr &&
         fs::exists(fmt::format("{}/.config/containers/policy.json", home), error);
}

std::vector<std::string> skopeo_words(const std::string& scratch) {
  std::vector<std::string> words = {"skopeo"};
  if (!has_signature_policy()) words.emplace_back("--insecure-policy");
  words.push_back(fmt::format("--tmpdir={}", scratch));
  words.push_back(fmt::format("--override-os={}", kOs));
  words.push_back(fmt::format("--override-arch={}", kArchitecture));
  return words;
}

uint64_t bytes_in(const std::string& folder) {
  uint64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    struct stat st {};
    if (::lstat(it->path().c_str(), &st) == 0) total += static_cast<uint64_t>(st.st_size);
  }
  return total;
}

// The msg="…" of a logrus line, or the line.
std::string message_of(std::string_view line) {
  const size_t start = line.find("msg=\"");
  if (start == std::string_view::npos) return std::string(line);
  std::string out;
  for (size_t i = start + 5; i < line.size() && line[i] != '"'; ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) ++i;
    out.push_back(line[i]);
  }
  return out;
}

tl::unexpected<Error> fail_missing_skopeo() {
  return fail(Error{Code::kUnavailable, "skopeo, which fetches images, is not installed",
                    "apt-get install skopeo, or use the built-in image: sandbox run builtin"});
}

Result<WatchedEnd> run_skopeo(const WatchedProgram& program, const ImageReference& reference,
                              Progress& progress) {
  auto end = run_watched(program, progress);
  if (!end && end.error().code == Code::kUnavailable) return fail_missing_skopeo();
  if (!end) return fail(std::move(end.error()));
  if (end->exit_code != 0)
    return fail(explain_skopeo_failure(reference.text(),
                                       end->tail.empty() ? "no message" : end->tail.back()));
  return end;
}

Result<std::string> read_checked_blob(const std::string& folder, const Descriptor& descriptor,
                                      std::string_view what) {
  ASSIGN(const Fd fd, open_blob(folder, descriptor.digest));
  ASSIGN(std::string content, read_all(fd.get(), kMaxImageJson));
  if (content.size() != descriptor.size || Digest::of(as_bytes(content)) != descriptor.digest)
    return fail(Code::kTampered, "the image's {} is not the one its manifest names ({})", what,
                descriptor.digest.text());
  return content;
}

Status check_platform(const ImageDescription& description) {
  if (description.os == kOs && description.architecture == kArchitecture) return {};
  return fail(
      Error{Code::kInvalid,
            fmt::format("the image is for {}/{}, not for {}/{}", escape_terminal(description.os),
                        escape_terminal(description.architecture), kOs, kArchitecture),
            "choose a tag of the image that is built for this machine"});
}

Result<FetchedImage> read_fetched(const std::string& folder) {
  FetchedImage out;
  ASSIGN(const std::string manifest, read_file(folder + "/manifest.json", kMaxImageJson));
  ASSIGN(out.manifest, parse_manifest(manifest));
  ASSIGN(const std::string config, read_checked_blob(folder, out.manifest.config, "configuration"));
  ASSIGN(out.description, parse_image_description(config));
  TRY(check_platform(out.description));
  if (out.description.diff_ids.size() != out.manifest.layers.size())
    return fail(Code::kTampered, "the image has {} layers, its configuration promises {}",
                out.manifest.layers.size(), out.description.diff_ids.size());
  return out;
}

}  // namespace

Error explain_skopeo_failure(std::string_view reference, std::string_view last_line) {
  struct Known {
    std::string_view part;
    Code code;
    std::string_view hint;
  };
  static constexpr std::array kKnown = {
      Known{"manifest unknown", Code::kNotFound, "check the name and the tag"},
      Known{"name unknown", Code::kNotFound, "check the name and the tag"},
      Known{"no image found", Code::kNotFound, "look for a tag built for this machine"},
      Known{"no such file", Code::kNotFound, "check the path"},
      Known{"unauthorized", Code::kPermission,
            "does it exist? a private image needs docker login first"},
      Known{"authentication required", Code::kPermission,
            "a private image needs docker login first"},
      Known{"denied", Code::kPermission, "does it exist? a private image needs docker login first"},
      Known{"did not match", Code::kTampered, "the registry holds a damaged image; push it again"},
      Known{"does not match", Code::kTampered, "the registry holds a damaged image; push it again"},
      Known{"unexpected EOF", Code::kTampered,
            "the connection broke or the registry holds a damaged image"},
      Known{"no space left", Code::kLimit, "free some space, or set SANDBOX_HOME to a larger disk"},
      Known{"x509", Code::kUnavailable,
            "the registry's certificate is not trusted by this machine"},
      Known{"no such host", Code::kUnavailable,
            "is a registry in reach? sandbox run builtin needs none"},
      Known{"connection refused", Code::kUnavailable,
            "is a registry in reach? sandbox run builtin needs none"},
      Known{"timeout", Code::kUnavailable,
            "is a registry in reach? sandbox run builtin needs none"},
      Known{"unreachable", Code::kUnavailable,
            "is a registry in reach? sandbox run builtin needs none"},
  };
  const std::string message = message_of(last_line);
  Error error{Code::kIo, fmt::format("pulling {}: {}", reference, message)};
  for (const Known& known : kKnown) {
    if (message.find(known.part) == std::string::npos) continue;
    error.code = known.code;
    error.hint = known.hint;
    break;
  }
  return error;
}

Result<FetchedImage> fetch_image(const ImageReference& reference, const std::string& folder,
                                 Progress& progress) {
  progress.step(fmt::format("pulling {}", reference.text()));
  const std::string scratch = folder + ".tmp";
  TRY(make_private_dir(scratch));
  WatchedProgram program;
  program.argv = skopeo_words(scratch);
  for (const char* word : {"copy", "--quiet", "--retry-times=2"}) program.argv.emplace_back(word);
  if (reference.loopback()) program.argv.emplace_back("--src-tls-verify=false");
  program.argv.push_back(reference.transport());
  program.argv.push_back("dir:" + folder);
  // The total is not known before the end; what has arrived is.
  program.on_tick = [&] { progress.advance(bytes_in(folder) + bytes_in(scratch), 0); };
  auto end = run_skopeo(program, reference, progress);
  if (!end) return fail(std::move(end.error()));
  auto fetched = read_fetched(folder);
  if (!fetched) return fail(std::move(fetched.error()).while_doing(reference.text()));
  return fetched;
}

Result<std::string> fetch_image_id(const ImageReference& reference, const std::string& scratch,
                                   Progress& progress) {
  progress.step(fmt::format("asking for {}", reference.text()));
  const std::string path = scratch + "/config";
  ASSIGN(const Fd file, open_file(path, O_RDWR | O_CREAT | O_TRUNC));
  WatchedProgram program;
  program.argv = skopeo_words(scratch);
  for (const char* word : {"inspect", "--config", "--raw", "--retry-times=2"})
    program.argv.emplace_back(word);
  if (reference.loopback()) program.argv.emplace_back("--tls-verify=false");
  program.argv.push_back(reference.transport());
  program.stdout_fd = file.get();
  auto end = run_skopeo(program, reference, progress);
  if (!end) return fail(std::move(end.error()));
  if (::lseek(file.get(), 0, SEEK_SET) < 0) return fail_errno(errno, "lseek");
  ASSIGN(const std::string config, read_all(file.get(), kMaxImageJson));
  return Digest::of(as_bytes(config)).text();
}

Result<Fd> open_blob(const std::string& folder, const Digest& digest) {
  return open_file(fmt::format("{}/{}", folder, digest.hex()), O_RDONLY | O_NOFOLLOW);
}

}  // namespace sandbox
