#include "machine/kernel_package.h"

#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace sandbox {
namespace {

// A minimal ELF with the sections given, and their name table.
struct Section {
  std::string name;
  uint32_t type;
  std::string content;
};
Bytes elf_with(const std::vector<Section>& sections) {
  std::string names(1, '\0');
  std::vector<Elf64_Shdr> headers(1);
  std::string body;
  const auto add = [&](const std::string& name, uint32_t type, const std::string& content) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<Elf64_Word>(names.size());
    header.sh_type = type;
    header.sh_offset = sizeof(Elf64_Ehdr) + body.size();
    header.sh_size = content.size();
    names += name + '\0';
    body += content;
    headers.push_back(header);
  };
  for (const auto& s : sections) add(s.name, s.type, s.content);
  add(".shstrtab", SHT_STRTAB, "");
  headers.back().sh_size = names.size();
  headers.back().sh_offset = sizeof(Elf64_Ehdr) + body.size();
  body += names;
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, 4);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_DATA] = ELFDATA2LSB;
  head.e_shoff = sizeof head + body.size();
  head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shnum = static_cast<Elf64_Half>(headers.size());
  head.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  ByteWriter out;
  out.text({reinterpret_cast<const char*>(&head), sizeof head});
  out.text(body);
  for (const auto& h : headers) out.text({reinterpret_cast<const char*>(&h), sizeof h});
  return out.take();
}

Bytes module_needing(const std::string& names) {
  using namespace std::string_literals;
  return elf_with({{".modinfo", SHT_PROGBITS, "license=GPL\0depends="s + names + "\0name=x\0"s}});
}

Bytes kernel_elf() {
  ByteWriter note;
  note.le32(4);
  note.le32(8);
  note.le32(18);
  note.text(std::string("Xen\0", 4));
  note.le64(0x1000000);
  return elf_with({{".notes", SHT_NOTE, std::string(as_text(note.view()))}});
}

enum class Pack { kXz, kGzip, kZstd };
Bytes packed(ByteView content, Pack how) {
  Bytes out(content.size() + 65536);
  size_t used = 0;
  archive* a = ::archive_write_new();
  if (how == Pack::kXz) ::archive_write_add_filter_xz(a);
  if (how == Pack::kGzip) ::archive_write_add_filter_gzip(a);
  if (how == Pack::kZstd) ::archive_write_add_filter_zstd(a);
  ::archive_write_set_format_raw(a);
  ::archive_write_set_bytes_in_last_block(a, 1);
  ::archive_write_open_memory(a, out.data(), out.size(), &used);
  archive_entry* entry = ::archive_entry_new();
  ::archive_entry_set_filetype(entry, AE_IFREG);
  ::archive_write_header(a, entry);
  ::archive_write_data(a, content.data(), content.size());
  ::archive_entry_free(entry);
  ::archive_write_close(a);
  ::archive_write_free(a);
  out.resize(used);
  return out;
}

// Header fields at their offsets (boot.rst): setup_sects 0x1f1, HdrS 0x202, version 0x206, payload
// 0x248 and 0x24c.
Bytes bzimage_of(ByteView payload) {
  Bytes image(1024, 0);
  image[0x1f1] = 1;
  std::memcpy(image.data() + 0x202, "HdrS", 4);
  image[0x206] = 0x0f;
  image[0x207] = 0x02;
  const uint32_t offset = 16;
  const auto length = static_cast<uint32_t>(payload.size() + 4);
  std::memcpy(image.data() + 0x248, &offset, 4);
  std::memcpy(image.data() + 0x24c, &length, 4);
  image.insert(image.end(), offset, 0x90);
  image.insert(image.end(), payload.begin(), payload.end());
  image.insert(image.end(), {1, 2, 3, 4});  // the uncompressed size that follows the stream
  image.insert(image.end(), 100, 0x90);
  return image;
}

using Files = std::vector<std::pair<std::string, Bytes>>;

Bytes archive_of(const Files& files, bool ar) {
  Bytes out(1 << 20);
  size_t used = 0;
  archive* a = ::archive_write_new();
  if (ar)
    ::archive_write_set_format_ar_bsd(a);
  else
    ::archive_write_set_format_ustar(a);
  if (!ar) ::archive_write_add_filter_xz(a);
  ::archive_write_set_bytes_in_last_block(a, 1);
  ::archive_write_open_memory(a, out.data(), out.size(), &used);
  for (const auto& [name, content] : files) {
    archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, name.c_str());
    ::archive_entry_set_filetype(entry, AE_IFREG);
    ::archive_entry_set_perm(entry, 0644);
    ::archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    ::archive_write_header(a, entry);
    ::archive_write_data(a, content.data(), content.size());
    ::archive_entry_free(entry);
  }
  ::archive_write_close(a);
  ::archive_write_free(a);
  out.resize(used);
  return out;
}

class PackageTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { (void)remove_tree(folder_); }
  std::string package(const Files& files) {
    const std::string path = folder_ + "/k.deb";
    const Bytes deb = archive_of({{"debian-binary", {'2', '.', '0', '\n'}},
                                  {"control.tar.xz", archive_of({}, false)},
                                  {"data.tar.xz", archive_of(files, false)}},
                                 true);
    EXPECT_TRUE(write_file_atomic(path, as_text(deb)));
    return path;
  }
  static std::string in_modules(const std::string& name) {
    return "./lib/modules/6.12.1-x/kernel/drivers/" + name;
  }
  std::string folder_ = testing::TempDir() + "package_XXXXXX";
  NoProgress progress_;
};

TEST(KernelPayload, IsFoundWhateverTheCompression) {
  for (const Pack how : {Pack::kXz, Pack::kGzip, Pack::kZstd}) {
    const Bytes elf = kernel_elf();
    const auto found = kernel_payload(bzimage_of(packed(elf, how)));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, elf);
    EXPECT_TRUE(has_pvh_entry(*found));
  }
}

TEST(KernelPayload, WhatIsNoKernelIsAnError) {
  const Bytes good = bzimage_of(packed(kernel_elf(), Pack::kXz));
  for (size_t cut = 0; cut < good.size() - 104; cut += 7)
    EXPECT_FALSE(kernel_payload(ByteView(good).first(cut))) << cut;
  Bytes huge_length = good;
  huge_length[0x24f] = 0xff;
  EXPECT_FALSE(kernel_payload(huge_length));
  EXPECT_FALSE(kernel_payload(bzimage_of(packed(as_bytes(std::string(4096, 'x')), Pack::kXz))));
}

TEST(Elf, APlainOneHasNoPvhEntry) {
  EXPECT_FALSE(has_pvh_entry(module_needing("")));
}

TEST(Elf, ModuleDependenciesUseOneSpelling) {
  const auto needs = module_dependencies(module_needing("net_failover,virtio-ring"));
  ASSERT_TRUE(needs);
  EXPECT_EQ(*needs, (std::vector<std::string>{"net_failover", "virtio_ring"}));
  EXPECT_TRUE(module_dependencies(module_needing(""))->empty());
  EXPECT_FALSE(module_dependencies(as_bytes("not an elf")));
  EXPECT_FALSE(module_dependencies(kernel_elf()));
}

TEST(Elf, BrokenTablesAreSurvived) {
  const Bytes good = module_needing("a");
  for (size_t at = 0; at < sizeof(Elf64_Ehdr); ++at)
    for (const uint8_t value : std::initializer_list<uint8_t>{0x00, 0x7f, 0xff}) {
      Bytes bad = good;
      bad[at] = value;
      (void)module_dependencies(bad);
      (void)has_pvh_entry(bad);
    }
  for (size_t cut = 0; cut < good.size(); ++cut)
    (void)module_dependencies(ByteView(good).first(cut));
}

TEST(LoadOrder, PutsDependenciesFirstAndRefusesCircles) {
  const auto order = load_order({{"a", {"c"}}, {"b", {}}, {"c", {"b", "builtin"}}});
  ASSERT_TRUE(order);
  EXPECT_EQ(*order, (std::vector<std::string>{"b", "c", "a"}));
  EXPECT_FALSE(load_order({{"a", {"b"}}, {"b", {"a"}}}));
}

TEST_F(PackageTest, GivesKernelAndModulesWithWhatTheyNeed) {
  const std::string deb = package({
      {"./boot/vmlinuz-6.12.1-x", bzimage_of(packed(kernel_elf(), Pack::kZstd))},
      {in_modules("virtio-one.ko.xz"), packed(module_needing("two"), Pack::kXz)},
      {in_modules("two.ko.xz"), packed(module_needing("three"), Pack::kXz)},
      {in_modules("three.ko"), module_needing("")},
      {in_modules("net_failover.ko"), module_needing("failover")},
      {in_modules("failover.ko"), module_needing("")},
      {in_modules("other.ko"), module_needing("")},
  });
  const auto kernel = unpack_kernel_package(deb, {"virtio_one"}, progress_);
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->version, "6.12.1-x");
  EXPECT_EQ(kernel->vmlinux, kernel_elf());
  std::vector<std::string> files;
  for (const auto& module : kernel->modules) files.push_back(module.file);
  EXPECT_EQ(files, (std::vector<std::string>{"failover.ko", "net_failover.ko", "three.ko", "two.ko",
                                             "virtio-one.ko"}));
}

TEST_F(PackageTest, SaysWhichModuleIsMissing) {
  const std::string deb = package({
      {"./boot/vmlinuz-6.12.1-x", bzimage_of(packed(kernel_elf(), Pack::kXz))},
      {in_modules("net_failover.ko"), module_needing("")},
      {in_modules("failover.ko"), module_needing("")},
      {in_modules("one.ko"), module_needing("absent")},
  });
  for (const std::string_view wanted : {"nowhere", "one"}) {
    const auto kernel = unpack_kernel_package(deb, {wanted}, progress_);
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code, Code::kNotFound);
  }
}

TEST_F(PackageTest, WhatIsNoPackageIsAnError) {
  ASSERT_TRUE(write_file_atomic(folder_ + "/junk", "junk"));
  EXPECT_FALSE(unpack_kernel_package(folder_ + "/junk", {}, progress_));
  EXPECT_FALSE(unpack_kernel_package(folder_ + "/absent", {}, progress_));
  const auto empty = unpack_kernel_package(package({}), {}, progress_);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Code::kInvalid);
}

}  // namespace
}  // namespace sandbox
