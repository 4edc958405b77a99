#include "image/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "image/builtin.h"
#include "image/digest.h"
#include "image/disk_builder.h"
#include "image/fetch.h"

namespace sandbox {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A record of refs/. `recipe` is what the built-in image was made from; empty for others.
struct Record {
  Image image;
  std::string recipe;
};

std::string to_json(const Record& record) {
  const ImageConfig& config = record.image.config;
  const Json json = {{"reference", record.image.reference},
                     {"id", record.image.id},
                     {"recipe", record.recipe},
                     {"disk_bytes", record.image.disk_bytes},
                     {"created_ns", record.image.created_ns},
                     {"entrypoint", config.entrypoint},
                     {"cmd", config.cmd},
                     {"env", config.env},
                     {"workdir", config.workdir},
                     {"user", config.user}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Record> from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    Record out;
    json.at("reference").get_to(out.image.reference);
    json.at("id").get_to(out.image.id);
    json.at("recipe").get_to(out.recipe);
    json.at("disk_bytes").get_to(out.image.disk_bytes);
    json.at("created_ns").get_to(out.image.created_ns);
    json.at("entrypoint").get_to(out.image.config.entrypoint);
    json.at("cmd").get_to(out.image.config.cmd);
    json.at("env").get_to(out.image.config.env);
    json.at("workdir").get_to(out.image.config.workdir);
    json.at("user").get_to(out.image.config.user);
    return out;
  } catch (const std::exception&) {
    return fail(Code::kInvalid, "not an image record");
  }
}

Result<Record> read_record(const std::string& path) {
  ASSIGN(const std::string text, read_file(path, 2 * kMaxImageJson));
  return from_json(text);
}

Result<std::string> canonical(std::string_view reference) {
  if (reference == kBuiltinImage) return std::string(reference);
  ASSIGN(const ImageReference parsed, ImageReference::parse(reference));
  return parsed.text();
}

Result<Descriptor> describe_file(const std::string& path, Progress& progress) {
  ASSIGN(const Fd fd, open_file(path, O_RDONLY));
  Descriptor out;
  Sha256 hash;
  Bytes buffer(1U << 20);
  for (;;) {
    if (progress.cancelled()) return fail(Code::kCancelled, "cancelled");
    const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, path);
    if (n == 0) break;
    hash.update(ByteView(buffer).first(static_cast<size_t>(n)));
    out.size += static_cast<uint64_t>(n);
  }
  out.digest = hash.finish();
  return out;
}

Result<std::vector<Record>> read_records(const std::string& root) {
  std::vector<Record> out;
  std::error_code error;
  for (fs::directory_iterator it(root + "/refs", error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".json") continue;
    auto record = read_record(it->path().string());
    if (record) out.push_back(std::move(*record));
  }
  return out;
}

}  // namespace

// One pull or build of a reference at a time. The file goes with its holder; whoever waited for it
// meanwhile finds that its path means another file, or none, and takes that one.
class ImageStore::ReferenceLock {
 public:
  static Result<ReferenceLock> acquire(const std::string& ref_path) {
    const std::string path = ref_path + kSuffix;
    for (;;) {
      ASSIGN(FileLock lock, FileLock::acquire(path));
      if (is_at(path, lock.fd())) return ReferenceLock(path, std::move(lock));
    }
  }
  // Files whose process was killed.
  static void remove_abandoned(const std::string& root) {
    std::error_code error;
    for (fs::directory_iterator it(root + "/refs", error), end; !error && it != end;
         it.increment(error)) {
      const std::string path = it->path().string();
      if (!path.ends_with(kSuffix)) continue;
      auto lock = FileLock::try_acquire(path);
      if (lock && is_at(path, lock->fd())) (void)ReferenceLock(path, std::move(*lock));
    }
  }
  ReferenceLock(ReferenceLock&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  ReferenceLock& operator=(ReferenceLock&&) = delete;
  ~ReferenceLock() {
    if (!path_.empty()) (void)::unlink(path_.c_str());
  }

 private:
  static constexpr const char* kSuffix = ".lock";
  static bool is_at(const std::string& path, int fd) {
    struct stat named {};
    struct stat held {};
    return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &held) == 0 &&
           named.st_dev == held.st_dev && named.st_ino == held.st_ino;
  }
  ReferenceLock(std::string path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  FileLock lock_;
};

// A folder of tmp/ for one pull or build. Its lock tells others that it is in use; it goes with the
// object.
class ImageStore::Workspace {
 public:
  static Result<Workspace> create(const std::string& root) {
    std::string path = root + "/tmp/XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return fail_errno(errno, "creating a work folder");
    auto lock = FileLock::try_acquire(path + "/lock");
    if (!lock) {
      (void)remove_tree(path);
      return fail(std::move(lock.error()));
    }
    return Workspace(std::move(path), std::move(*lock));
  }
  // Folders whose process is gone. A folder so young that its process may not have locked it yet is
  // left alone.
  static void remove_abandoned(const std::string& root) {
    std::error_code error;
    for (fs::directory_iterator it(root + "/tmp", error), end; !error && it != end;
         it.increment(error)) {
      const std::string path = it->path().string();
      struct stat st {};
      if (::lstat(path.c_str(), &st) < 0) continue;
      if (wall_now_ns() / 1'000'000'000 - st.st_mtime < 2) continue;
      const auto lock = FileLock::try_acquire(path + "/lock");
      if (lock) (void)remove_tree(path);
    }
  }
  Workspace(Workspace&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}
  Workspace& operator=(Workspace&&) = delete;
  ~Workspace() {
    if (!path_.empty()) (void)remove_tree(path_);
  }
  [[nodiscard]] std::string at(std::string_view name) const {
    return fmt::format("{}/{}", path_, name);
  }

 private:
  Workspace(std::string path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  FileLock lock_;
};

Result<ImageStore> ImageStore::open(const Home& home) {
  ASSIGN(const std::string root, home.images_dir());
  for (const char* folder : {"refs", "disks", "tmp"})
    TRY(make_private_dir(fmt::format("{}/{}", root, folder)));
  Workspace::remove_abandoned(root);
  ReferenceLock::remove_abandoned(root);
  return ImageStore(root);
}

std::string ImageStore::ref_path(std::string_view reference) const {
  return fmt::format("{}/refs/{}.json", root_, Digest::of(as_bytes(reference)).hex());
}

std::string ImageStore::disk_path(std::string_view id) const {
  return fmt::format("{}/disks/{}.ext4", root_, id.substr(id.find(':') + 1));
}

Result<Image> ImageStore::find(std::string_view reference) const {
  const auto missing = [&] {
    return fail(Code::kNotFound, "there is no image {} here", escape_terminal(reference));
  };
  const auto record = read_record(ref_path(reference));
  if (!record || !Digest::parse(record->image.id)) return missing();
  Image image = record->image;
  image.disk_path = disk_path(image.id);
  if (::access(image.disk_path.c_str(), R_OK) < 0) return missing();
  return image;
}

Result<Image> ImageStore::ensure(std::string_view reference, Progress& progress) {
  if (reference == kBuiltinImage) return ensure_builtin(progress);
  ASSIGN(const ImageReference parsed, ImageReference::parse(reference));
  if (auto found = find(parsed.text()); found) return found;
  ASSIGN(const ReferenceLock lock, ReferenceLock::acquire(ref_path(parsed.text())));
  if (auto found = find(parsed.text()); found) return found;  // another process was first
  return fetch(parsed, progress);
}

Result<Image> ImageStore::pull(std::string_view reference, Progress& progress) {
  if (reference == kBuiltinImage) return ensure_builtin(progress, true);
  ASSIGN(const ImageReference parsed, ImageReference::parse(reference));
  ASSIGN(const ReferenceLock lock, ReferenceLock::acquire(ref_path(parsed.text())));
  if (auto found = find(parsed.text()); found) {
    ASSIGN(const Workspace work, Workspace::create(root_));
    ASSIGN(const std::string id, fetch_image_id(parsed, work.at(""), progress));
    if (id == found->id) return found;
  }
  return fetch(parsed, progress);
}

Result<Image> ImageStore::fetch(const ImageReference& reference, Progress& progress) {
  ASSIGN(const Workspace work, Workspace::create(root_));
  const std::string layout = work.at("layout");
  TRY(make_private_dir(layout));
  ASSIGN(const FetchedImage fetched, fetch_image(reference, layout, progress));
  Image image;
  image.reference = reference.text();
  image.id = fetched.id();
  image.config = fetched.description.config;
  // The same image under another name: its disk is here.
  if (::access(disk_path(image.id).c_str(), R_OK) == 0) return publish(std::move(image), "", "");
  DiskJob job;
  job.disk_path = work.at("disk");
  job.disk_bytes = kImageDiskBytes;
  job.seed = fetched.manifest.config.digest;
  for (size_t i = 0; i < fetched.manifest.layers.size(); ++i) {
    const Descriptor& layer = fetched.manifest.layers[i];
    ASSIGN(Fd blob, open_blob(layout, layer.digest));
    job.layers.push_back({std::move(blob), layer, fetched.description.diff_ids[i]});
  }
  if (Status built = build_disk(job, progress); !built)
    return fail(std::move(built.error()).while_doing(reference.text()));
  return publish(std::move(image), job.disk_path, "");
}

Result<Image> ImageStore::ensure_builtin(Progress& progress, bool rebuild) {
  ASSIGN(const std::string recipe, builtin_recipe());
  const std::string path = ref_path(kBuiltinImage);
  const auto current = [&]() -> std::optional<Image> {
    const auto record = read_record(path);
    if (!record || record->recipe != recipe) return std::nullopt;
    auto found = find(kBuiltinImage);
    return found ? std::optional(std::move(*found)) : std::nullopt;
  };
  if (!rebuild)
    if (auto image = current()) return *image;
  ASSIGN(const ReferenceLock lock, ReferenceLock::acquire(path));
  if (!rebuild)
    if (auto image = current()) return *image;
  return build_builtin(recipe, progress);
}

Result<Image> ImageStore::build_builtin(const std::string& recipe, Progress& progress) {
  ASSIGN(const Workspace work, Workspace::create(root_));
  const std::string tar = work.at("root.tar");
  TRY(make_builtin_root(tar, progress));
  ASSIGN(const Descriptor descriptor, describe_file(tar, progress));
  DiskJob job;
  job.disk_path = work.at("disk");
  job.disk_bytes = kImageDiskBytes;
  job.seed = descriptor.digest;
  ASSIGN(Fd blob, open_file(tar, O_RDONLY));
  job.layers.push_back({std::move(blob), descriptor, descriptor.digest});
  TRY(build_disk(job, progress));
  Image image;
  image.reference = kBuiltinImage;
  image.id = descriptor.digest.text();
  image.config = builtin_config();
  return publish(std::move(image), job.disk_path, recipe);
}

Result<Image> ImageStore::publish(Image image, const std::string& new_disk,
                                  std::string_view recipe) {
  ASSIGN(const FileLock lock, FileLock::acquire(root_ + "/lock"));
  image.disk_path = disk_path(image.id);
  if (!new_disk.empty() && ::rename(new_disk.c_str(), image.disk_path.c_str()) < 0)
    return fail_errno(errno, fmt::format("rename to {}", image.disk_path));
  image.disk_bytes = allocated_bytes(image.disk_path);
  image.created_ns = wall_now_ns();
  if (image.disk_bytes == 0)
    return fail(Error{Code::kNotFound,
                      fmt::format("the disk of image {} was removed just now", image.reference),
                      "run it again"});
  TRY(write_file_atomic(ref_path(image.reference), to_json({image, std::string(recipe)})));
  // The disk that this reference named before may be nobody's now.
  ASSIGN(const uint64_t freed, drop_unreferenced_disks());
  (void)freed;
  return image;
}

Result<std::vector<Image>> ImageStore::list() const {
  ASSIGN(std::vector<Record> records, read_records(root_));
  std::vector<Image> out;
  for (Record& record : records) {
    auto image = find(record.image.reference);
    if (image) out.push_back(std::move(*image));
  }
  std::sort(out.begin(), out.end(),
            [](const Image& a, const Image& b) { return a.reference < b.reference; });
  return out;
}

namespace {

// An exclusive lock that nobody using the disk would let us have; kExists when somebody does.
Result<Fd> claim_disk(const std::string& path, std::string_view reference) {
  ASSIGN(Fd fd, open_file(path, O_RDONLY));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return fail_errno(errno, fmt::format("flock {}", path));
  return fail(
      Error{Code::kExists,
            fmt::format("image {} is in use by a running sandbox", escape_terminal(reference)),
            "sandbox ls shows which; sandbox stop NAME ends it"});
}

}  // namespace

Result<uint64_t> ImageStore::remove(std::string_view wanted) {
  ASSIGN(const FileLock lock, FileLock::acquire(root_ + "/lock"));
  ASSIGN(const std::vector<Image> images, list());
  const auto reference = canonical(wanted);
  std::vector<const Image*> matches;
  const std::string_view hex = wanted.starts_with("sha256:") ? wanted.substr(7) : wanted;
  for (const Image& image : images)
    if (reference && image.reference == *reference) matches.push_back(&image);
  if (matches.empty() && hex.size() >= 4)
    for (const Image& image : images)
      if (std::string_view(image.id).substr(7).starts_with(hex)) matches.push_back(&image);
  if (matches.empty())
    return fail(Error{Code::kNotFound,
                      fmt::format("there is no image {} here", escape_terminal(wanted)),
                      "sandbox image ls shows what there is"});
  const std::string& id = matches.front()->id;
  for (const Image* match : matches)
    if (match->id != id)
      return fail(Code::kInvalid, "more than one image id starts with {}", escape_terminal(wanted));
  const auto users = std::count_if(images.begin(), images.end(),
                                   [&](const Image& image) { return image.id == id; });
  std::optional<Fd> claim;
  if (users == static_cast<ptrdiff_t>(matches.size())) {
    ASSIGN(claim, claim_disk(matches.front()->disk_path, matches.front()->reference));
  }
  for (const Image* match : matches) {
    const std::string path = ref_path(match->reference);
    if (::unlink(path.c_str()) < 0 && errno != ENOENT) return fail_errno(errno, path);
  }
  claim.reset();
  return drop_unreferenced_disks();
}

// With root_/lock held, so that no disk is between its rename and its reference. A disk that is
// still in use stays; whoever publishes or removes next finds it again.
Result<uint64_t> ImageStore::drop_unreferenced_disks() {
  ASSIGN(const std::vector<Record> records, read_records(root_));
  std::set<std::string> wanted;
  for (const Record& record : records) wanted.insert(disk_path(record.image.id));
  uint64_t freed = 0;
  std::error_code error;
  for (fs::directory_iterator it(root_ + "/disks", error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    if (wanted.contains(path)) continue;
    const auto claim = claim_disk(path, "");
    if (!claim) continue;
    const uint64_t bytes = allocated_bytes(path);
    if (::unlink(path.c_str()) == 0) freed += bytes;
  }
  return freed;
}

Result<Fd> ImageStore::open_base(const Image& image) {
  auto fd = open_file(image.disk_path, O_RDONLY);
  struct stat st {};
  if (!fd || ::flock(fd->get(), LOCK_SH | LOCK_NB) < 0 || ::fstat(fd->get(), &st) < 0 ||
      st.st_nlink == 0)  // removed between opening and locking
    return fail(Error{Code::kNotFound,
                      fmt::format("the disk of image {} was removed just now", image.reference),
                      "run it again"});
  return fd;
}

}  // namespace sandbox
