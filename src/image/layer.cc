#include "image/layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <condition_variable>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/text.h"

namespace sandbox {

namespace {

constexpr size_t kReadChunk = 256U << 10;
constexpr size_t kQueuedChunks = 16;  // each as large as libarchive hands out, 64 KiB

using Archive = std::unique_ptr<archive, decltype([](archive* a) { archive_read_free(a); })>;

// libarchive converts the names of pax headers, which are UTF-8, to the thread's character set and
// damages them when that is ASCII. So while it runs, it is UTF-8.
class Utf8Names {
 public:
  Utf8Names() {
    if (std::string_view(::nl_langinfo(CODESET)) == "UTF-8") return;
    locale_ = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    if (locale_ != nullptr) before_ = ::uselocale(locale_);
  }
  ~Utf8Names() {
    if (locale_ == nullptr) return;
    ::uselocale(before_);
    ::freelocale(locale_);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;
  // The thread stays in UTF-8.
  void keep() { locale_ = nullptr; }

 private:
  locale_t locale_ = nullptr;
  locale_t before_ = nullptr;
};

std::string archive_message(archive* a) {
  const char* text = archive_error_string(a);
  return escape_terminal(text == nullptr ? "unreadable" : text);
}

// The blob's bytes as they lie on the host, hashed and counted on the way.
class BlobReader {
 public:
  BlobReader(int fd, uint64_t expected) : fd_(fd), expected_(expected), chunk_(kReadChunk) {}

  // Empty at the end. Never reads more than one byte beyond what the descriptor promised.
  Result<ByteView> next() {
    if (count_ > expected_) return ByteView{};
    const size_t wanted = std::min<uint64_t>(chunk_.size(), expected_ - count_ + 1);
    ssize_t n = 0;
    do {
      n = ::read(fd_, chunk_.data(), wanted);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return fail_errno(errno, "reading the blob");
    const ByteView view(chunk_.data(), static_cast<size_t>(n));
    hash_.update(view);
    count_ += view.size();
    return view;
  }

  // Reads what is left and compares.
  Status verify(const Descriptor& promised) {
    for (;;) {
      ASSIGN(const ByteView bytes, next());
      if (bytes.empty()) break;
    }
    if (count_ != promised.size)
      return fail(Code::kTampered, "its blob has {} {} bytes instead of {}",
                  count_ > promised.size ? "more than" : "only", std::min(count_, promised.size),
                  promised.size);
    const Digest actual = hash_.finish();
    if (actual != promised.digest)
      return fail(Code::kTampered, "its blob has the digest {}", actual.text());
    return {};
  }

 private:
  int fd_;
  uint64_t expected_;
  uint64_t count_ = 0;
  Sha256 hash_;
  Bytes chunk_;
};

// Turns the blob into the tar stream, chunk by chunk, in a thread. The consumer takes chunks with
// next(); when it is destroyed early, the producer stops at its next chunk.
class Decompressor {
 public:
  explicit Decompressor(BlobReader& blob) : blob_(blob), thread_([this] { produce(); }) {}
  ~Decompressor() { stop(); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // Empty at the end of the stream.
  Result<Bytes> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty() || ended_; });
    if (queue_.empty()) {
      if (error_) return fail(*error_);
      return Bytes{};
    }
    Bytes chunk = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return chunk;
  }
  // Ends the thread; afterwards the blob belongs to the caller again.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static la_ssize_t read_blob(archive* a, void* self, const void** bytes) {
    auto next = static_cast<Decompressor*>(self)->blob_.next();
    if (!next) {
      archive_set_error(a, EIO, "%s", next.error().message.c_str());
      return -1;
    }
    *bytes = next->data();
    return static_cast<la_ssize_t>(next->size());
  }

  void produce() {
    Status status = decompress();
    const std::lock_guard lock(mutex_);
    if (!status) error_ = std::move(status.error());
    ended_ = true;
    changed_.notify_all();
  }

  Status decompress() {
    const Archive a(archive_read_new());
    if (!a) return fail(Code::kInternal, "libarchive gave no reader");
    archive_read_support_filter_gzip(a.get());
    archive_read_support_filter_zstd(a.get());
    archive_read_support_format_raw(a.get());
    archive_read_support_format_empty(a.get());
    archive_entry* entry = nullptr;
    if (archive_read_open(a.get(), this, nullptr, read_blob, nullptr) != ARCHIVE_OK)
      return fail(Code::kInvalid, "it cannot be unpacked: {}", archive_message(a.get()));
    const int opened = archive_read_next_header(a.get(), &entry);
    if (opened == ARCHIVE_EOF) return {};
    if (opened != ARCHIVE_OK)
      return fail(Code::kInvalid, "it cannot be unpacked: {}", archive_message(a.get()));
    for (;;) {
      const void* bytes = nullptr;
      size_t size = 0;
      la_int64_t offset = 0;
      const int code = archive_read_data_block(a.get(), &bytes, &size, &offset);
      if (code == ARCHIVE_EOF) return {};
      if (code != ARCHIVE_OK)
        return fail(Code::kInvalid, "it cannot be unpacked: {}", archive_message(a.get()));
      if (size == 0) continue;
      const auto* first = static_cast<const uint8_t*>(bytes);
      if (!push(Bytes(first, first + size))) return {};
    }
  }

  bool push(Bytes chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.size() < kQueuedChunks || stopping_; });
    if (stopping_) return false;
    queue_.push_back(std::move(chunk));
    changed_.notify_all();
    return true;
  }

  BlobReader& blob_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Bytes> queue_;
  std::optional<Error> error_;
  bool ended_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

// The tar stream as libarchive pulls it, hashed and bounded on the way.
class TarStream {
 public:
  TarStream(Decompressor& source, uint64_t limit, std::string limit_text)
      : source_(source), limit_(limit), limit_text_(std::move(limit_text)) {}

  Status advance() {
    auto next = source_.next();
    if (!next) return remember(std::move(next.error()));
    chunk_ = std::move(*next);
    count_ += chunk_.size();
    if (count_ > limit_) return remember(Error{Code::kLimit, limit_text_});
    hash_.update(chunk_);
    return {};
  }
  [[nodiscard]] ByteView chunk() const { return chunk_; }
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] Digest digest() { return hash_.finish(); }
  // What advance() failed with inside a callback, where libarchive can pass on a text only.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  static la_ssize_t read(archive* a, void* self, const void** bytes) {
    auto* stream = static_cast<TarStream*>(self);
    if (!stream->advance()) {
      archive_set_error(a, EIO, "the stream ended in an error");
      return -1;
    }
    *bytes = stream->chunk_.data();
    return static_cast<la_ssize_t>(stream->chunk_.size());
  }

 private:
  Status remember(Error error) {
    error_ = error;
    return fail(std::move(error));
  }

  Decompressor& source_;
  uint64_t limit_;
  std::string limit_text_;
  uint64_t count_ = 0;
  Sha256 hash_;
  Bytes chunk_;
  std::optional<Error> error_;
};

// Attributes that mean the same inside. Labels of the builder's own security modules and overlayfs'
// bookkeeping do not.
bool keeps_xattr(std::string_view name) {
  return (name.starts_with("user.") && name.size() > 5) || name == "security.capability" ||
         name == "system.posix_acl_access" || name == "system.posix_acl_default";
}

Result<uint32_t> id_of(la_int64_t value, std::string_view name, std::string_view what) {
  if (value < 0 || value > 0xFFFFFFFELL)
    return fail(Code::kInvalid, "{} has the {} {}", escape_terminal(name.substr(0, 200)), what,
                value);
  return static_cast<uint32_t>(value);
}

class TarReader {
 public:
  TarReader(TarStream& stream, FileTree& tree, ContentSink& sink)
      : stream_(stream), tree_(tree), sink_(sink) {}

  // `tick` is called for every entry and every part of content; its error ends the reading.
  template <class Tick>
  Status run(Tick tick) {
    const Archive a(archive_read_new());
    if (!a) return fail(Code::kInternal, "libarchive gave no reader");
    archive_ = a.get();
    archive_read_support_format_tar(archive_);
    archive_read_support_format_empty(archive_);
    if (archive_read_open(archive_, &stream_, nullptr, TarStream::read, nullptr) != ARCHIVE_OK)
      return broken();
    for (;;) {
      TRY(tick());
      archive_entry* entry = nullptr;
      const int code = archive_read_next_header(archive_, &entry);
      if (code == ARCHIVE_EOF) return {};
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return broken();
      TRY(read_entry(entry, tick));
    }
  }

 private:
  Status broken() {
    if (stream_.error()) return fail(*stream_.error());
    return fail(Code::kInvalid, "it is not a sound tar archive: {}", archive_message(archive_));
  }

  template <class Tick>
  Status read_entry(archive_entry* entry, Tick tick) {
    const char* raw_name = archive_entry_pathname(entry);
    if (raw_name == nullptr) return fail(Code::kInvalid, "an entry has an unreadable name");
    const std::string name = raw_name;
    TRY(tree_.check_name(name));
    if (FileTree::is_whiteout(name)) return tree_.whiteout(name);
    if (const char* target = archive_entry_hardlink(entry); target != nullptr)
      return tree_.link(name, target);
    ASSIGN(std::optional<FileInode> inode, metadata(entry, name));
    if (!inode) return {};
    if (inode->kind == FileKind::kFile) {
      TRY(read_content(name, inode->size, tick));
      ASSIGN(inode->extents, sink_.end_file());
    }
    return tree_.put(name, std::move(*inode));
  }

  // nullopt: a kind of entry that is nothing in a file system.
  static Result<std::optional<FileInode>> metadata(archive_entry* entry, const std::string& name) {
    FileInode inode;
    switch (archive_entry_filetype(entry)) {
      case AE_IFREG:
        inode.kind = FileKind::kFile;
        break;
      case AE_IFDIR:
        inode.kind = FileKind::kDirectory;
        break;
      case AE_IFLNK:
        inode.kind = FileKind::kSymlink;
        break;
      case AE_IFCHR:
        inode.kind = FileKind::kCharDevice;
        break;
      case AE_IFBLK:
        inode.kind = FileKind::kBlockDevice;
        break;
      case AE_IFIFO:
        inode.kind = FileKind::kFifo;
        break;
      default:
        return std::optional<FileInode>{};
    }
    inode.mode = static_cast<uint32_t>(archive_entry_perm(entry)) & 07777;
    ASSIGN(inode.uid, id_of(archive_entry_uid(entry), name, "uid"));
    ASSIGN(inode.gid, id_of(archive_entry_gid(entry), name, "gid"));
    if (archive_entry_mtime_is_set(entry) != 0) {
      inode.mtime = archive_entry_mtime(entry);
      inode.mtime_ns =
          static_cast<uint32_t>(std::clamp<long>(archive_entry_mtime_nsec(entry), 0, 999'999'999));
    }
    if (inode.kind == FileKind::kFile) {
      const la_int64_t size = archive_entry_size(entry);
      // ext4's largest file with blocks of 4 KiB is 16 TiB.
      if (size < 0 || size >= la_int64_t{1} << 44)
        return fail(Code::kInvalid, "{} claims {} bytes", escape_terminal(name), size);
      inode.size = static_cast<uint64_t>(size);
    }
    if (inode.kind == FileKind::kSymlink) {
      const char* target = archive_entry_symlink(entry);
      inode.target = target == nullptr ? "" : target;
    }
    if (inode.kind == FileKind::kCharDevice || inode.kind == FileKind::kBlockDevice) {
      const auto major = static_cast<uint64_t>(archive_entry_rdevmajor(entry));
      const auto minor = static_cast<uint64_t>(archive_entry_rdevminor(entry));
      // Linux: 12 and 20 bits.
      if (major > 0xFFF || minor > 0xFFFFF)
        return fail(Code::kInvalid, "{} has the device number {}:{}", escape_terminal(name), major,
                    minor);
      inode.device_major = static_cast<uint32_t>(major);
      inode.device_minor = static_cast<uint32_t>(minor);
    }
    add_xattrs(entry, inode);
    return std::optional<FileInode>(std::move(inode));
  }

  static void add_xattrs(archive_entry* entry, FileInode& inode) {
    archive_entry_xattr_reset(entry);
    const char* key = nullptr;
    const void* value = nullptr;
    size_t size = 0;
    while (archive_entry_xattr_next(entry, &key, &value, &size) == ARCHIVE_OK) {
      if (key == nullptr || !keeps_xattr(key)) continue;
      const auto same = [&](const auto& pair) { return pair.first == key; };
      std::erase_if(inode.xattrs, same);  // the last one counts
      inode.xattrs.emplace_back(key, std::string(static_cast<const char*>(value), size));
    }
  }

  template <class Tick>
  Status read_content(const std::string& name, uint64_t size, Tick tick) {
    for (;;) {
      const void* bytes = nullptr;
      size_t count = 0;
      la_int64_t offset = 0;
      const int code = archive_read_data_block(archive_, &bytes, &count, &offset);
      if (code == ARCHIVE_EOF) return {};
      if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return broken();
      if (count == 0) continue;
      if (offset < 0 || static_cast<uint64_t>(offset) > size ||
          count > size - static_cast<uint64_t>(offset))
        return fail(Code::kInvalid, "{} has content behind its end", escape_terminal(name));
      TRY(sink_.write(static_cast<uint64_t>(offset), {static_cast<const uint8_t*>(bytes), count}));
      TRY(tick());
    }
  }

  TarStream& stream_;
  FileTree& tree_;
  ContentSink& sink_;
  archive* archive_ = nullptr;
};

uint64_t stream_limit(const LayerInput& layer, const LayerBudget& budget) {
  return std::min(budget.uncompressed_left,
                  std::max(kFreeExpansion, layer.blob.size * kMaxExpansion));
}

Status read_stream(const LayerInput& layer, BlobReader& blob, FileTree& tree, ContentSink& sink,
                   LayerBudget& budget, Progress& progress) {
  Decompressor decompressor(blob);
  const uint64_t limit = stream_limit(layer, budget);
  TarStream stream(decompressor, limit,
                   fmt::format("it unpacks to more than {}", format_size(limit)));
  TarReader reader(stream, tree, sink);
  const auto tick = [&]() -> Status {
    if (progress.cancelled()) return fail(Code::kCancelled, "cancelled");
    return {};
  };
  tree.begin_layer();
  TRY(reader.run(tick));
  do {  // behind the end of the archive there is padding, which belongs to the diff_id
    TRY(stream.advance());
    TRY(tick());
  } while (!stream.chunk().empty());
  decompressor.stop();
  budget.uncompressed_left -= stream.count();
  const Digest actual = stream.digest();
  if (actual != layer.diff_id)
    return fail(Code::kTampered, "it unpacks to {}, the configuration promises {}", actual.text(),
                layer.diff_id.text());
  TRY(tree.end_layer());
  sink.discard(tree.take_freed());
  return {};
}

// One pax header record "len path=é" as libarchive's own writer makes it, read back.
void convert_one_name() {
  std::array<uint8_t, 16384> bytes{};
  size_t used = 0;
  const std::unique_ptr<archive, decltype([](archive* a) { archive_write_free(a); })> out(
      archive_write_new());
  archive_write_set_format_pax(out.get());
  archive_write_open_memory(out.get(), bytes.data(), bytes.size(), &used);
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, "\xC3\xA9");
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_write_header(out.get(), entry);
  archive_entry_free(entry);
  archive_write_close(out.get());
  const Archive in(archive_read_new());
  archive_read_support_format_tar(in.get());
  archive_read_open_memory(in.get(), bytes.data(), used);
  if (archive_read_next_header(in.get(), &entry) == ARCHIVE_OK) (void)archive_entry_pathname(entry);
}

}  // namespace

void prepare_to_read_layers() {
  Utf8Names utf8;
  utf8.keep();
  convert_one_name();
}

Status read_layer(const LayerInput& layer, FileTree& tree, ContentSink& sink, LayerBudget& budget,
                  Progress& progress) {
  const Utf8Names utf8;
  if (layer.blob.size > std::numeric_limits<uint64_t>::max() / kMaxExpansion)
    return fail(Code::kInvalid, "{}: it claims {} bytes", layer.label, layer.blob.size);
  BlobReader blob(layer.fd, layer.blob.size);
  Status read = read_stream(layer, blob, tree, sink, budget, progress);
  const bool cancelled = !read && read.error().code == Code::kCancelled;
  Status verified = cancelled ? Status{} : blob.verify(layer.blob);
  // Damaged bytes look like anything; that they are damaged is the better message.
  if (!verified) return fail(std::move(verified.error()).while_doing(layer.label));
  if (!read) return fail(std::move(read.error()).while_doing(layer.label));
  budget.blob_done += layer.blob.size;
  progress.advance(budget.blob_done, budget.blob_total);
  return {};
}

}  // namespace sandbox
