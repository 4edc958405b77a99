#include "machine/kernel_package.h"

#include <archive.h>
#include <archive_entry.h>
#include <elf.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>

#include "base/text.h"

namespace sandbox {

const std::vector<std::string_view> kGuestModules = {"virtio_blk", "virtio_net", "virtio_rng",
                                                     "virtio_balloon", "overlay"};

namespace {

constexpr size_t kMaxKernel = 256U << 20;
constexpr size_t kMaxModule = 64U << 20;
constexpr size_t kBlock = 64U << 10;
constexpr int kMostPasses = 8;

struct ArchiveCloser {
  void operator()(archive* a) const { ::archive_read_free(a); }
};
using Archive = std::unique_ptr<archive, ArchiveCloser>;

tl::unexpected<Error> archive_failure(archive* a, std::string_view doing) {
  const char* text = ::archive_error_string(a);
  return fail(Code::kInvalid, "{}: {}", doing, text == nullptr ? "unreadable archive" : text);
}

Result<Bytes> read_entry(archive* a, size_t limit, std::string_view name) {
  Bytes out;
  for (;;) {
    const size_t at = out.size();
    if (at > limit) return fail(Code::kLimit, "{} is larger than {} bytes", name, limit);
    out.resize(at + kBlock);
    const la_ssize_t n = ::archive_read_data(a, out.data() + at, kBlock);
    if (n < 0) return archive_failure(a, name);
    out.resize(at + static_cast<size_t>(n));
    if (n == 0) return out;
  }
}

// The inner archive reads the current member of the outer one.
struct Member {
  archive* outer;
  std::array<char, kBlock> buffer;
};

la_ssize_t read_member(archive*, void* context, const void** block) {
  auto* member = static_cast<Member*>(context);
  *block = member->buffer.data();
  return ::archive_read_data(member->outer, member->buffer.data(), member->buffer.size());
}

using EntryVisitor = std::function<Status(std::string_view path, archive* inner)>;

Status visit_package(const std::string& deb, const EntryVisitor& visit) {
  const Archive outer(::archive_read_new());
  ::archive_read_support_format_ar(outer.get());
  if (::archive_read_open_filename(outer.get(), deb.c_str(), kBlock) != ARCHIVE_OK)
    return archive_failure(outer.get(), deb);
  archive_entry* entry = nullptr;
  for (;;) {
    const int status = ::archive_read_next_header(outer.get(), &entry);
    if (status == ARCHIVE_EOF) return fail(Code::kInvalid, "{} is not a Debian package", deb);
    if (status != ARCHIVE_OK) return archive_failure(outer.get(), deb);
    const char* name = ::archive_entry_pathname(entry);
    if (name != nullptr && std::string_view(name).starts_with("data.tar")) break;
  }
  Member member{outer.get(), {}};
  const Archive inner(::archive_read_new());
  ::archive_read_support_format_tar(inner.get());
  ::archive_read_support_filter_all(inner.get());
  if (::archive_read_open(inner.get(), &member, nullptr, read_member, nullptr) != ARCHIVE_OK)
    return archive_failure(inner.get(), deb);
  for (;;) {
    const int status = ::archive_read_next_header(inner.get(), &entry);
    if (status == ARCHIVE_EOF) return {};
    if (status < ARCHIVE_WARN) return archive_failure(inner.get(), deb);
    const char* name = ::archive_entry_pathname(entry);
    if (name == nullptr || ::archive_entry_filetype(entry) != AE_IFREG) continue;
    std::string_view path = name;
    if (path.starts_with("./")) path.remove_prefix(2);
    TRY(visit(path, inner.get()));
  }
}

std::string normal(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

// "lib/modules/V/kernel/x/virtio-rng.ko.xz" → {"virtio-rng.ko", "virtio_rng"}
struct ModuleName {
  std::string file;
  std::string name;
};
std::optional<ModuleName> module_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos || path.find("lib/modules/") == path.npos) return std::nullopt;
  const std::string_view base = path.substr(slash + 1);
  const size_t end = base.find(".ko");
  if (end == base.npos) return std::nullopt;
  return ModuleName{std::string(base.substr(0, end + 3)), normal(base.substr(0, end))};
}

bool is_elf(ByteView bytes) {
  return bytes.size() > sizeof(Elf64_Ehdr) && as_text(bytes).starts_with(ELFMAG) &&
         bytes[EI_CLASS] == ELFCLASS64 && bytes[EI_DATA] == ELFDATA2LSB;
}

// The bytes of the sections for which `wanted` answers true. Bounds are checked; nothing of the
// file is trusted.
void visit_sections(
    ByteView elf, const std::function<void(std::string_view name, uint32_t type, ByteView)>& see) {
  if (!is_elf(elf)) return;
  Elf64_Ehdr header{};
  std::memcpy(&header, elf.data(), sizeof header);
  const auto slice = [&](uint64_t at, uint64_t size) -> ByteView {
    if (at > elf.size() || size > elf.size() - at) return {};
    return elf.subspan(at, size);
  };
  const auto section = [&](size_t index) {
    Elf64_Shdr s{};
    const ByteView raw = slice(header.e_shoff + index * sizeof s, sizeof s);
    if (raw.size() == sizeof s) std::memcpy(&s, raw.data(), sizeof s);
    return s;
  };
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return;
  const Elf64_Shdr names = section(header.e_shstrndx);
  const std::string_view name_table = as_text(slice(names.sh_offset, names.sh_size));
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_type == SHT_NOBITS || s.sh_name >= name_table.size()) continue;
    std::string_view name = name_table.substr(s.sh_name);
    name = name.substr(0, name.find('\0'));
    see(name, s.sh_type, slice(s.sh_offset, s.sh_size));
  }
}

constexpr uint32_t kPhys32Entry = 18;  // XEN_ELFNOTE_PHYS32_ENTRY of xen/interface/elfnote.h

bool notes_have_pvh(ByteView notes) {
  ByteReader in(notes);
  while (in.ok() && in.remaining() >= 12) {
    const uint32_t name_size = in.le32();
    const uint32_t data_size = in.le32();
    const uint32_t type = in.le32();
    const ByteView name = in.take(name_size);
    in.skip((4 - name_size % 4) % 4);
    in.skip(data_size);
    if (in.ok() && type == kPhys32Entry && as_text(name).starts_with("Xen")) return true;
    in.skip(std::min<size_t>((4 - data_size % 4) % 4, in.remaining()));
  }
  return false;
}

}  // namespace

Result<Bytes> decompress(ByteView compressed, size_t limit) {
  const Archive a(::archive_read_new());
  ::archive_read_support_filter_all(a.get());
  ::archive_read_support_format_raw(a.get());
  archive_entry* entry = nullptr;
  if (::archive_read_open_memory(a.get(), compressed.data(), compressed.size()) != ARCHIVE_OK ||
      ::archive_read_next_header(a.get(), &entry) < ARCHIVE_WARN)
    return archive_failure(a.get(), "decompressing");
  if (::archive_filter_count(a.get()) < 2)
    return fail(Code::kInvalid, "decompressing: no known compression");
  return read_entry(a.get(), limit, "compressed data");
}

Result<Bytes> kernel_payload(ByteView bzimage) {
  ByteReader header(bzimage);
  header.skip(0x1f1);
  const uint64_t setup_sectors = header.u8();
  header.skip(0x202 - 0x1f2);
  const ByteView magic = bzimage.size() > 0x206 ? bzimage.subspan(0x202, 4) : ByteView{};
  header.skip(4);
  const uint16_t version = header.le16();
  header.skip(0x248 - 0x208);
  const uint64_t offset = header.le32();
  const uint64_t length = header.le32();
  if (!header.ok() || as_text(magic) != "HdrS" || version < 0x0208)
    return fail(Code::kInvalid, "not a Linux bzImage of protocol 2.08 or later");
  const uint64_t start = ((setup_sectors == 0 ? 4 : setup_sectors) + 1) * 512 + offset;
  // The last four bytes of the payload are its uncompressed size (init_size trailer), not part of
  // the stream.
  if (start > bzimage.size() || length > bzimage.size() - start || length <= 4)
    return fail(Code::kInvalid, "the kernel image is cut short");
  auto elf = decompress(bzimage.subspan(start, length - 4), kMaxKernel);
  if (!elf) elf = decompress(bzimage.subspan(start, length), kMaxKernel);
  if (!elf) return fail(std::move(elf.error()).while_doing("the kernel image"));
  if (!is_elf(*elf)) return fail(Code::kInvalid, "the kernel image holds no 64-bit ELF");
  return elf;
}

bool has_pvh_entry(ByteView elf) {
  bool found = false;
  visit_sections(elf, [&](std::string_view, uint32_t type, ByteView content) {
    if (type == SHT_NOTE) found = found || notes_have_pvh(content);
  });
  return found;
}

Result<std::vector<std::string>> module_dependencies(ByteView ko) {
  if (!is_elf(ko)) return fail(Code::kInvalid, "a kernel module that is no 64-bit ELF");
  std::optional<std::vector<std::string>> depends;
  visit_sections(ko, [&](std::string_view name, uint32_t, ByteView content) {
    if (name != ".modinfo") return;
    for (const std::string_view line : split(as_text(content), '\0')) {
      if (!line.starts_with("depends=")) continue;
      depends.emplace();
      for (const std::string_view word : split(line.substr(8), ','))
        if (!word.empty()) depends->push_back(normal(word));
    }
  });
  if (!depends) return fail(Code::kInvalid, "a kernel module that does not say what it depends on");
  return *depends;
}

Result<std::vector<std::string>> load_order(
    const std::map<std::string, std::vector<std::string>>& dependencies) {
  std::vector<std::string> order;
  std::set<std::string> done;
  // Each round takes every module whose dependencies are all placed; a round without progress is a
  // cycle.
  while (done.size() < dependencies.size()) {
    const size_t before = done.size();
    for (const auto& [name, needs] : dependencies) {
      if (done.contains(name)) continue;
      const bool ready = std::all_of(needs.begin(), needs.end(), [&](const std::string& need) {
        return !dependencies.contains(need) || done.contains(need);
      });
      if (!ready) continue;
      order.push_back(name);
      done.insert(name);
    }
    if (done.size() == before)
      return fail(Code::kInvalid, "kernel modules depend on each other in a circle");
  }
  return order;
}

namespace {

// Reads the package until every wanted module and all it depends on is there; a further pass is
// needed only when a dependency was not foreseen.
class PackageReader {
 public:
  PackageReader(const std::string& deb, Progress& progress) : deb_(deb), progress_(progress) {}

  Status read(std::set<std::string> missing) {
    for (int pass = 0; !missing.empty() || kernel_.vmlinux.empty(); ++pass) {
      if (pass == kMostPasses) return fail(Code::kInvalid, "{} nests its modules too deeply", deb_);
      TRY(visit_package(
          deb_, [&](std::string_view path, archive* inner) { return take(path, inner, missing); }));
      if (kernel_.vmlinux.empty()) return fail(Code::kInvalid, "{} holds no kernel", deb_);
      std::set<std::string> next;
      for (const auto& [name, needs] : needs_)
        for (const auto& need : needs)
          if (!files_.contains(need)) next.insert(need);
      for (const auto& name : missing)
        if (!files_.contains(name)) return fail(Code::kNotFound, "{} has no module {}", deb_, name);
      missing = std::move(next);
    }
    return {};
  }

  Result<UnpackedKernel> finish() {
    ASSIGN(const std::vector<std::string> order, load_order(needs_));
    for (const auto& name : order) kernel_.modules.push_back(std::move(files_.at(name)));
    return std::move(kernel_);
  }

 private:
  Status take(std::string_view path, archive* inner, const std::set<std::string>& missing) {
    if (progress_.cancelled()) return fail(Code::kCancelled, "interrupted");
    constexpr std::string_view kPrefix = "boot/vmlinuz-";
    if (path.starts_with(kPrefix) && kernel_.vmlinux.empty()) {
      kernel_.version = path.substr(kPrefix.size());
      ASSIGN(const Bytes image, read_entry(inner, kMaxKernel, path));
      ASSIGN(kernel_.vmlinux, kernel_payload(image));
      return {};
    }
    const auto module = module_name(path);
    if (!module || !missing.contains(module->name) || files_.contains(module->name)) return {};
    ASSIGN(Bytes content, read_entry(inner, kMaxModule, path));
    if (!is_elf(content)) {
      ASSIGN(content, decompress(content, kMaxModule));
    }
    auto needs = module_dependencies(content);
    if (!needs) return fail(std::move(needs.error()).while_doing(path));
    needs_[module->name] = std::move(*needs);
    files_[module->name] = UnpackedModule{module->file, std::move(content)};
    return {};
  }

  const std::string& deb_;
  Progress& progress_;
  UnpackedKernel kernel_;
  std::map<std::string, UnpackedModule> files_;
  std::map<std::string, std::vector<std::string>> needs_;
};

}  // namespace

Result<UnpackedKernel> unpack_kernel_package(const std::string& deb,
                                             const std::vector<std::string_view>& wanted,
                                             Progress& progress) {
  // virtio_net brings these two along; asking for them at once saves a second pass over the
  // package.
  std::set<std::string> names = {"net_failover", "failover"};
  for (const auto& name : wanted) names.insert(normal(name));
  PackageReader reader(deb, progress);
  TRY(reader.read(std::move(names)));
  return reader.finish();
}

}  // namespace sandbox
