#include "image/disk_writer.h"

#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

// libext2fs in four notions, as used here:
//   * fs->block_map, fs->inode_map: bitmaps in memory, written at close. *_alloc_stats* marks them
//   and keeps the group and
//     superblock counters, the UNINIT flags and the group checksums right.
//   * the io channel: block reads and writes with a small cache; metadata only, content goes
//   straight to the descriptor.
//   * inode and directory-block writers put the checksums of metadata_csum in.
//   * errcode_t: 0, an errno, or a code of its com_err table.
//
// Choices:
//   * The features are those mke2fs 1.47 gives an ext4, without resize_inode (the size is fixed)
//   and with a journal of 32 MiB
//     instead of 256: a guest that fills its journal fills its overlay.
//   * The file is new and sparse, so inode tables are zero already. Every group says so
//   (INODE_ZEROED), else the guest's
//     kernel would zero a gigabyte of inode tables in the background, all of it into its overlay.
//   * Directories are written without hash index: the kernel reads them linearly and indexes a
//   directory of one block when
//     it outgrows that block.
//   * No lost+found: an image does not have one, and e2fsck makes it when it needs it.

namespace sandbox {

namespace {

constexpr size_t kBufferBytes = 4U << 20;
constexpr uint64_t kJournalBlocks = 8192;
constexpr uint32_t kMaxExtentBlocks = 32768;  // ext4: an initialised extent's length
constexpr uint64_t kMaxFileBlocks = 0xFFFFFFFFULL - 1;
constexpr size_t kInlineExtents = 4;  // what fits into an inode
constexpr size_t kFastSymlink = 60;   // a shorter target lies in the inode
constexpr uint32_t kDirectoryTail = sizeof(ext2_dir_entry_tail);
constexpr uint64_t kSpaceCheckEvery = 64U << 20;

tl::unexpected<Error> fail_ext(errcode_t code, std::string_view activity) {
  if (code > 0 && code < 1024) return fail_errno(static_cast<int>(code), activity);
  return fail(Code::kIo, "{}: {}", activity, error_message(code));
}

#define TRY_EXT(call, activity)                                                                \
  do {                                                                                         \
    if (const errcode_t ext_code = (call); ext_code != 0) return fail_ext(ext_code, activity); \
  } while (false)

uint16_t type_bits(FileKind kind) {
  switch (kind) {
    case FileKind::kFile:
      return LINUX_S_IFREG;
    case FileKind::kDirectory:
      return LINUX_S_IFDIR;
    case FileKind::kSymlink:
      return LINUX_S_IFLNK;
    case FileKind::kCharDevice:
      return LINUX_S_IFCHR;
    case FileKind::kBlockDevice:
      return LINUX_S_IFBLK;
    case FileKind::kFifo:
      return LINUX_S_IFIFO;
  }
  return 0;
}

uint8_t entry_type(FileKind kind) {
  switch (kind) {
    case FileKind::kFile:
      return EXT2_FT_REG_FILE;
    case FileKind::kDirectory:
      return EXT2_FT_DIR;
    case FileKind::kSymlink:
      return EXT2_FT_SYMLINK;
    case FileKind::kCharDevice:
      return EXT2_FT_CHRDEV;
    case FileKind::kBlockDevice:
      return EXT2_FT_BLKDEV;
    case FileKind::kFifo:
      return EXT2_FT_FIFO;
  }
  return 0;
}

// Seconds since 1970 in 34 bits from -2^31 on, the upper two in the low bits of the nanosecond word
// (kernel, fs/ext4/ext4.h).
struct DiskTime {
  uint32_t seconds;
  uint32_t extra;
};
DiskTime disk_time(int64_t seconds, uint32_t nanoseconds) {
  constexpr int64_t kFirst = -(int64_t{1} << 31);
  constexpr int64_t kLast = kFirst + (int64_t{1} << 34) - 1;
  const int64_t clamped = std::clamp(seconds, kFirst, kLast);
  const auto low = static_cast<uint32_t>(static_cast<uint64_t>(clamped));
  const int64_t epoch = (clamped - static_cast<int32_t>(low)) >> 32;
  return {low, (std::min(nanoseconds, 999'999'999U) << 2) | static_cast<uint32_t>(epoch & 3)};
}

ext2_inode_large make_inode(const FileInode& file) {
  ext2_inode_large inode{};
  inode.i_mode = static_cast<uint16_t>(type_bits(file.kind) | (file.mode & 07777));
  inode.i_uid = static_cast<uint16_t>(file.uid);
  inode.osd2.linux2.l_i_uid_high = static_cast<uint16_t>(file.uid >> 16);
  inode.i_gid = static_cast<uint16_t>(file.gid);
  inode.osd2.linux2.l_i_gid_high = static_cast<uint16_t>(file.gid >> 16);
  inode.i_extra_isize = sizeof(ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;
  const DiskTime time = disk_time(file.mtime, file.mtime_ns);
  inode.i_atime = inode.i_ctime = inode.i_mtime = inode.i_crtime = time.seconds;
  inode.i_atime_extra = inode.i_ctime_extra = inode.i_mtime_extra = inode.i_crtime_extra =
      time.extra;
  inode.i_links_count = static_cast<uint16_t>(file.links);
  return inode;
}

// The two encodings of a device number (kernel, old_encode_dev and new_encode_dev).
void set_device(ext2_inode_large& inode, uint32_t major, uint32_t minor) {
  if (major < 256 && minor < 256) {
    inode.i_block[0] = major << 8 | minor;
  } else {
    inode.i_block[1] = (minor & 0xFF) | (major << 8) | ((minor & ~0xFFU) << 12);
  }
}

void set_inline_extents(ext2_inode_large& inode, const std::vector<Extent>& extents) {
  inode.i_flags |= EXT4_EXTENTS_FL;
  auto* header = reinterpret_cast<ext3_extent_header*>(inode.i_block);
  header->eh_magic = ext2fs_cpu_to_le16(EXT3_EXT_MAGIC);
  header->eh_max = ext2fs_cpu_to_le16(kInlineExtents);
  header->eh_entries = ext2fs_cpu_to_le16(static_cast<uint16_t>(extents.size()));
  auto* slot = reinterpret_cast<ext3_extent*>(header + 1);
  for (const Extent& extent : extents) {
    slot->ee_block = ext2fs_cpu_to_le32(extent.logical);
    slot->ee_len = ext2fs_cpu_to_le16(static_cast<uint16_t>(extent.count));
    slot->ee_start = ext2fs_cpu_to_le32(static_cast<uint32_t>(extent.physical));
    slot->ee_start_hi = ext2fs_cpu_to_le16(static_cast<uint16_t>(extent.physical >> 32));
    ++slot;
  }
}

void set_features(ext2_super_block& super) {
  super.s_rev_level = EXT2_DYNAMIC_REV;
  super.s_feature_compat = EXT2_FEATURE_COMPAT_EXT_ATTR | EXT2_FEATURE_COMPAT_DIR_INDEX;
  super.s_feature_incompat = EXT2_FEATURE_INCOMPAT_FILETYPE | EXT3_FEATURE_INCOMPAT_EXTENTS |
                             EXT4_FEATURE_INCOMPAT_FLEX_BG | EXT4_FEATURE_INCOMPAT_64BIT;
  super.s_feature_ro_compat =
      EXT2_FEATURE_RO_COMPAT_SPARSE_SUPER | EXT2_FEATURE_RO_COMPAT_LARGE_FILE |
      EXT4_FEATURE_RO_COMPAT_HUGE_FILE | EXT4_FEATURE_RO_COMPAT_DIR_NLINK |
      EXT4_FEATURE_RO_COMPAT_EXTRA_ISIZE | EXT4_FEATURE_RO_COMPAT_METADATA_CSUM;
}

}  // namespace

// One open libext2fs file system, and the writing of trees into it.
class DiskWriter::FileSystem {
 public:
  static Result<std::unique_ptr<FileSystem>> create(const std::string& path, const Digest& seed,
                                                    uint64_t disk_bytes);
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  ~FileSystem() {
    if (fs_ != nullptr) ext2fs_free(fs_);
  }

  // The first run of free blocks at or behind `from`; count 0 when there is none.
  Run free_run(uint64_t from) const;
  Status write_tree(const FileTree& tree, uint64_t cursor);
  Status close();

 private:
  // What a directory entry, and later an inode, is written from.
  struct Planned {
    uint32_t tree_inode = 0;
    ext2_ino_t parent = 0;                 // directories only
    const FileTree::Node* node = nullptr;  // directories only
    uint32_t subdirectories = 0;
    std::vector<Bytes> blocks;  // of a directory, or of a long symbolic link
    Extent place;               // where `blocks` go
  };

  void plan(const FileTree::Node& directory, ext2_ino_t number);
  ext2_ino_t number_of(const FileTree::Node& node, ext2_ino_t parent);
  [[nodiscard]] std::vector<Bytes> directory_blocks(const FileTree& tree, const Planned& planned,
                                                    ext2_ino_t number) const;
  Status place_blocks(Planned& planned);
  Status write_one(const FileTree& tree, ext2_ino_t number, Planned& planned);
  Status write_extents(ext2_ino_t number, ext2_inode_large& inode,
                       const std::vector<Extent>& extents);
  Status write_xattrs(ext2_ino_t number, const FileInode& file);
  Status write_inode(ext2_ino_t number, ext2_inode_large& inode);

  ext2_filsys fs_ = nullptr;
  uint64_t cursor_ = 0;
  std::vector<Planned> planned_;     // index: inode number - kFirstPlanned; [0] is the root
  std::vector<ext2_ino_t> numbers_;  // tree inode → inode number, 0 when none yet
};

namespace {

constexpr ext2_ino_t kFirstFreeInode = 11;

// planned_[0] is the root (inode 2), planned_[i] is inode 10 + i.
ext2_ino_t number_at(size_t index) {
  return index == 0 ? EXT2_ROOT_INO : static_cast<ext2_ino_t>(kFirstFreeInode + index - 1);
}
size_t index_of(ext2_ino_t number) {
  return number == EXT2_ROOT_INO ? 0 : number - kFirstFreeInode + 1;
}

}  // namespace

Result<std::unique_ptr<DiskWriter::FileSystem>> DiskWriter::FileSystem::create(
    const std::string& path, const Digest& seed, uint64_t disk_bytes) {
  ext2_super_block parameters{};
  ext2fs_blocks_count_set(&parameters, disk_bytes / kDiskBlock);
  parameters.s_log_block_size = 2;
  parameters.s_log_cluster_size = 2;
  parameters.s_inode_size = 256;
  parameters.s_desc_size = EXT2_MIN_DESC_SIZE_64BIT;
  parameters.s_inodes_count = static_cast<uint32_t>(disk_bytes / 16384);
  parameters.s_log_groups_per_flex = 4;
  parameters.s_errors = EXT2_ERRORS_RO;
  set_features(parameters);
  auto out = std::make_unique<FileSystem>();
  TRY_EXT(
      ext2fs_initialize(path.c_str(), EXT2_FLAG_64BITS, &parameters, unix_io_manager, &out->fs_),
      "preparing the file system");
  ext2_filsys fs = out->fs_;
  fs->now = 1;  // 0 would mean the clock; the same image shall make the same disk
  fs->super->s_mkfs_time = fs->super->s_lastcheck = fs->super->s_wtime = 1;
  fs->super->s_max_mnt_count = -1;
  fs->super->s_def_hash_version = EXT2_HASH_HALF_MD4;
  fs->super->s_flags |= EXT2_FLAGS_SIGNED_HASH;
  fs->super->s_min_extra_isize = fs->super->s_want_extra_isize =
      sizeof(ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;
  fs->super->s_default_mount_opts = EXT2_DEFM_XATTR_USER | EXT2_DEFM_ACL;
  std::memcpy(fs->super->s_uuid, seed.bytes().data(), 16);
  std::memcpy(fs->super->s_hash_seed, seed.bytes().data() + 16, 16);
  // The variant and version bits of a random UUID (RFC 4122).
  fs->super->s_uuid[6] = static_cast<uint8_t>((fs->super->s_uuid[6] & 0x0F) | 0x40);
  fs->super->s_uuid[8] = static_cast<uint8_t>((fs->super->s_uuid[8] & 0x3F) | 0x80);
  fs->super->s_checksum_type = EXT2_CRC32C_CHKSUM;
  ext2fs_init_csum_seed(fs);
  TRY_EXT(ext2fs_allocate_tables(fs), "laying out the file system");
  for (dgrp_t group = 0; group < fs->group_desc_count; ++group) {
    ext2fs_bg_flags_set(fs, group, EXT2_BG_INODE_ZEROED);
    ext2fs_group_desc_csum_set(fs, group);
  }
  for (ext2_ino_t reserved = EXT2_BAD_INO; reserved < kFirstFreeInode; ++reserved)
    ext2fs_inode_alloc_stats2(fs, reserved, +1, reserved == EXT2_ROOT_INO ? 1 : 0);
  TRY_EXT(ext2fs_add_journal_inode2(fs, kJournalBlocks, ~blk64_t{0},
                                    EXT2_MKJOURNAL_LAZYINIT | EXT2_MKJOURNAL_NO_MNT_CHECK),
          "making the journal");
  return out;
}

DiskWriter::Run DiskWriter::FileSystem::free_run(uint64_t from) const {
  const blk64_t last = ext2fs_blocks_count(fs_->super) - 1;
  from = std::max<uint64_t>(from, fs_->super->s_first_data_block);
  blk64_t start = 0;
  if (from > last || ext2fs_find_first_zero_block_bitmap2(fs_->block_map, from, last, &start) != 0)
    return {};
  blk64_t end = 0;
  if (ext2fs_find_first_set_block_bitmap2(fs_->block_map, start, last, &end) != 0) end = last + 1;
  return {start, end - start};
}

ext2_ino_t DiskWriter::FileSystem::number_of(const FileTree::Node& node, ext2_ino_t parent) {
  ext2_ino_t& number = numbers_[node.inode];
  if (number != 0) return number;
  number = number_at(planned_.size());
  Planned planned;
  planned.tree_inode = node.inode;
  if (node.children) {
    planned.parent = parent;
    planned.node = &node;
  }
  planned_.push_back(std::move(planned));
  return number;
}

// Numbers the entries of a directory next to each other, then goes down: what is listed together
// lies together. The depth of a tree is bounded (FileTree::kMaxDepth), and so is the recursion.
void DiskWriter::FileSystem::plan(const FileTree::Node& directory, ext2_ino_t number) {
  uint32_t subdirectories = 0;
  for (const auto& [name, child] : *directory.children) {
    (void)number_of(child, number);
    if (child.children) ++subdirectories;
  }
  planned_[index_of(number)].subdirectories = subdirectories;
  for (const auto& [name, child] : *directory.children)
    if (child.children) plan(child, numbers_[child.inode]);
}

std::vector<Bytes> DiskWriter::FileSystem::directory_blocks(const FileTree& tree,
                                                            const Planned& planned,
                                                            ext2_ino_t number) const {
  std::vector<Bytes> blocks;
  size_t at = kDiskBlock;    // in the last block; full, so that the first entry opens one
  size_t last = kDiskBlock;  // where the entry before lies
  const size_t usable = kDiskBlock - kDirectoryTail;
  const auto stretch = [&] {
    if (blocks.empty()) return;
    auto* entry = reinterpret_cast<ext2_dir_entry*>(blocks.back().data() + last);
    (void)ext2fs_set_rec_len(fs_, static_cast<unsigned>(usable - last), entry);
    ext2fs_initialize_dirent_tail(
        fs_, reinterpret_cast<ext2_dir_entry_tail*>(blocks.back().data() + usable));
  };
  const auto add = [&](std::string_view name, ext2_ino_t inode, uint8_t type) {
    const size_t length = (8 + name.size() + 3) & ~size_t{3};
    if (at + length > usable) {
      stretch();
      blocks.emplace_back(kDiskBlock);
      at = 0;
    }
    auto* entry = reinterpret_cast<ext2_dir_entry*>(blocks.back().data() + at);
    entry->inode = inode;
    entry->name_len = static_cast<uint16_t>(name.size() | (static_cast<unsigned>(type) << 8));
    (void)ext2fs_set_rec_len(fs_, static_cast<unsigned>(length), entry);
    std::memcpy(entry->name, name.data(), name.size());
    last = at;
    at += length;
  };
  add(".", number, EXT2_FT_DIR);
  add("..", planned.parent, EXT2_FT_DIR);
  for (const auto& [name, child] : *planned.node->children)
    add(name, numbers_[child.inode], entry_type(tree.inode(child.inode).kind));
  stretch();
  return blocks;
}

Status DiskWriter::FileSystem::place_blocks(Planned& planned) {
  const uint64_t wanted = planned.blocks.size();
  if (wanted == 0) return {};
  Run run = free_run(cursor_);
  while (run.count != 0 && run.count < wanted) run = free_run(run.start + run.count);
  if (run.count == 0) return fail(Code::kLimit, "the image does not fit on its disk");
  planned.place = {0, static_cast<uint32_t>(wanted), run.start};
  ext2fs_block_alloc_stats_range(fs_, run.start, static_cast<blk_t>(wanted), +1);
  cursor_ = run.start + wanted;
  return {};
}

Status DiskWriter::FileSystem::write_inode(ext2_ino_t number, ext2_inode_large& inode) {
  TRY_EXT(ext2fs_write_inode_full(fs_, number, reinterpret_cast<ext2_inode*>(&inode), sizeof inode),
          "writing an inode");
  return {};
}

Status DiskWriter::FileSystem::write_extents(ext2_ino_t number, ext2_inode_large& inode,
                                             const std::vector<Extent>& extents) {
  uint64_t blocks = 0;
  for (const Extent& extent : extents) blocks += extent.count;
  TRY_EXT(ext2fs_iblk_set(fs_, reinterpret_cast<ext2_inode*>(&inode), blocks), "counting blocks");
  if (extents.size() <= kInlineExtents) {
    set_inline_extents(inode, extents);
    return write_inode(number, inode);
  }
  set_inline_extents(inode, {});
  TRY(write_inode(number, inode));
  ext2_extent_handle_t handle = nullptr;
  TRY_EXT(ext2fs_extent_open2(fs_, number, reinterpret_cast<ext2_inode*>(&inode), &handle),
          "opening an extent tree");
  errcode_t code = 0;
  for (const Extent& extent : extents) {
    ext2fs_extent slot{};
    slot.e_pblk = extent.physical;
    slot.e_lblk = extent.logical;
    slot.e_len = extent.count;
    slot.e_flags = EXT2_EXTENT_FLAGS_LEAF;
    code = ext2fs_extent_insert(handle, EXT2_EXTENT_INSERT_AFTER, &slot);
    if (code != 0) break;
  }
  ext2fs_extent_free(handle);
  if (code != 0) return fail_ext(code, "writing an extent tree");
  // The library wrote the inode's first 128 bytes through the pointer it was given, which is
  // complete again now.
  return write_inode(number, inode);
}

Status DiskWriter::FileSystem::write_xattrs(ext2_ino_t number, const FileInode& file) {
  if (file.xattrs.empty()) return {};
  ext2_xattr_handle* handle = nullptr;
  TRY_EXT(ext2fs_xattrs_open(fs_, number, &handle), "opening extended attributes");
  errcode_t code = ext2fs_xattrs_read(handle);
  for (const auto& [key, value] : file.xattrs) {
    if (code != 0) break;
    code = ext2fs_xattr_set(handle, key.c_str(), value.data(), value.size());
  }
  if (code == 0) code = ext2fs_xattrs_write(handle);
  ext2fs_xattrs_close(&handle);
  if (code != 0) return fail_ext(code, "writing extended attributes");
  return {};
}

Status DiskWriter::FileSystem::write_one(const FileTree& tree, ext2_ino_t number,
                                         Planned& planned) {
  const FileInode& file = tree.inode(planned.tree_inode);
  ext2_inode_large inode = make_inode(file);
  auto* small = reinterpret_cast<ext2_inode*>(&inode);
  uint64_t size = 0;
  std::vector<Extent> own;
  if (!planned.blocks.empty()) own.push_back(planned.place);
  const std::vector<Extent>* extents = &own;
  bool has_extents = true;
  switch (file.kind) {
    case FileKind::kFile:
      size = file.size;
      extents = &file.extents;
      break;
    case FileKind::kDirectory:
      size = planned.blocks.size() * kDiskBlock;
      // Above 64998 subdirectories the count says 1: "many" (feature dir_nlink).
      inode.i_links_count = static_cast<uint16_t>(
          planned.subdirectories + 2 >= EXT2_LINK_MAX ? 1 : planned.subdirectories + 2);
      break;
    case FileKind::kSymlink:
      size = file.target.size();
      if (size < kFastSymlink) {
        std::memcpy(inode.i_block, file.target.data(), file.target.size());
        has_extents = false;
      }
      break;
    case FileKind::kCharDevice:
    case FileKind::kBlockDevice:
      set_device(inode, file.device_major, file.device_minor);
      has_extents = false;
      break;
    case FileKind::kFifo:
      has_extents = false;
      break;
  }
  TRY_EXT(ext2fs_inode_size_set(fs_, small, static_cast<ext2_off64_t>(size)), "setting a size");
  if (has_extents) {
    TRY(write_extents(number, inode, *extents));
  } else {
    TRY(write_inode(number, inode));
  }
  for (size_t i = 0; i < planned.blocks.size(); ++i) {
    const blk64_t block = planned.place.physical + i;
    void* bytes = planned.blocks[i].data();
    TRY_EXT(file.kind == FileKind::kDirectory
                ? ext2fs_write_dir_block4(fs_, block, bytes, 0, number)
                : io_channel_write_blk64(fs_->io, block, 1, bytes),
            "writing a directory");
  }
  planned.blocks = {};
  return write_xattrs(number, file);
}

Status DiskWriter::FileSystem::write_tree(const FileTree& tree, uint64_t cursor) {
  cursor_ = cursor;
  numbers_.assign(tree.inode_count(), 0);
  (void)number_of(tree.root(), EXT2_ROOT_INO);
  plan(tree.root(), EXT2_ROOT_INO);
  if (number_at(planned_.size()) > fs_->super->s_inodes_count)
    return fail(Code::kLimit, "the image has more files than its disk has inodes");
  // All content is marked before anything else is allocated, for the library allocates too: extent
  // trees, attributes.
  for (const Planned& planned : planned_)
    for (const Extent& extent : tree.inode(planned.tree_inode).extents)
      ext2fs_block_alloc_stats_range(fs_, extent.physical, extent.count, +1);
  for (size_t i = 0; i < planned_.size(); ++i) {
    Planned& planned = planned_[i];
    const FileInode& file = tree.inode(planned.tree_inode);
    if (planned.node != nullptr) planned.blocks = directory_blocks(tree, planned, number_at(i));
    if (file.kind == FileKind::kSymlink && file.target.size() >= kFastSymlink) {
      planned.blocks.emplace_back(kDiskBlock);
      std::memcpy(planned.blocks[0].data(), file.target.data(), file.target.size());
    }
    TRY(place_blocks(planned));
  }
  for (size_t i = 0; i < planned_.size(); ++i) {
    if (i != 0)
      ext2fs_inode_alloc_stats2(fs_, number_at(i), +1, planned_[i].node != nullptr ? 1 : 0);
    TRY(write_one(tree, number_at(i), planned_[i]));
  }
  return {};
}

Status DiskWriter::FileSystem::close() {
  TRY_EXT(ext2fs_close_free(&fs_), "writing the file system's tables");
  return {};
}

Result<std::unique_ptr<DiskWriter>> DiskWriter::create(const std::string& path, const Digest& seed,
                                                       const Limits& limits) {
  ASSIGN(Fd fd, open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (::ftruncate(fd.get(), static_cast<off_t>(limits.disk_bytes)) < 0)
    return fail_errno(errno, fmt::format("making a sparse file of {} bytes", limits.disk_bytes));
  ASSIGN(auto fs, FileSystem::create(path, seed, limits.disk_bytes));
  return std::unique_ptr<DiskWriter>(new DiskWriter(std::move(fd), std::move(fs), limits));
}

DiskWriter::DiskWriter(Fd fd, std::unique_ptr<FileSystem> fs, const Limits& limits)
    : fd_(std::move(fd)), fs_(std::move(fs)), limits_(limits) {
  buffer_.reserve(kBufferBytes + kDiskBlock);
}

DiskWriter::~DiskWriter() = default;

Status DiskWriter::check_host_space() {
  if (written_ - checked_at_ < kSpaceCheckEvery) return {};
  checked_at_ = written_;
  struct statvfs st {};
  if (::fstatvfs(fd_.get(), &st) < 0) return fail_errno(errno, "fstatvfs");
  const uint64_t free_bytes = static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  if (free_bytes >= limits_.keep_free) return {};
  return fail(Error{Code::kLimit, "the host's disk is nearly full",
                    "free some space, or set SANDBOX_HOME to a larger disk"});
}

Status DiskWriter::flush() {
  size_t done = 0;
  const auto base = static_cast<off_t>(buffer_start_ * kDiskBlock);
  while (done < buffer_.size()) {
    const ssize_t n = ::pwrite(fd_.get(), buffer_.data() + done, buffer_.size() - done,
                               base + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "writing the image's disk");
    done += static_cast<size_t>(n);
  }
  if (done != 0) {
    // Starts writing back at once, so that finish() has little to wait for.
    (void)::sync_file_range(fd_.get(), base, static_cast<off_t>(done), SYNC_FILE_RANGE_WRITE);
    written_ += done;
    buffer_start_ += done / kDiskBlock;
    buffer_.clear();
  }
  return check_host_space();
}

Result<DiskWriter::Run> DiskWriter::take_run(uint64_t at_most) {
  if (free_.count == 0) {
    free_ = fs_->free_run(free_.start);
    if (free_.count == 0)
      return fail(Code::kLimit, "the image's files take more than its disk of {} GiB",
                  limits_.disk_bytes >> 30);
  }
  const Run run{free_.start, std::min(at_most, free_.count)};
  free_.start += run.count;
  free_.count -= run.count;
  return run;
}

// Takes blocks at position_, which is at a block's start, for up to wanted_bytes.
Status DiskWriter::start_blocks(uint64_t wanted_bytes) {
  const uint64_t logical = position_ / kDiskBlock;
  uint64_t wanted = (wanted_bytes + kDiskBlock - 1) / kDiskBlock;
  if (logical + wanted > kMaxFileBlocks)
    return fail(Code::kLimit, "a file is larger than ext4 allows");
  const bool extends = !extents_.empty() && extents_.back().count < kMaxExtentBlocks &&
                       extents_.back().logical + extents_.back().count == logical &&
                       extents_.back().physical + extents_.back().count == free_.start;
  const uint64_t room = extends ? kMaxExtentBlocks - extents_.back().count : kMaxExtentBlocks;
  ASSIGN(const Run run, take_run(std::min(wanted, room)));
  if (run.start * kDiskBlock != buffer_start_ * kDiskBlock + buffer_.size()) {
    TRY(flush());
    buffer_start_ = run.start;
  }
  const auto count = static_cast<uint32_t>(run.count);
  if (extends && extents_.back().physical + extents_.back().count == run.start) {
    extents_.back().count += count;
  } else {
    extents_.push_back({static_cast<uint32_t>(logical), count, run.start});
  }
  block_room_ = run.count * kDiskBlock;
  return {};
}

Status DiskWriter::append(ByteView bytes) {
  while (!bytes.empty()) {
    if (block_room_ == 0) TRY(start_blocks(bytes.size()));
    const size_t part = std::min<uint64_t>({bytes.size(), block_room_, kBufferBytes});
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(part));
    bytes = bytes.subspan(part);
    position_ += part;
    block_room_ -= part;
    if (buffer_.size() >= kBufferBytes && buffer_.size() % kDiskBlock == 0) TRY(flush());
  }
  return {};
}

Status DiskWriter::append_zeros(uint64_t count) {
  static const Bytes kZeros(kDiskBlock);
  return append(ByteView(kZeros).first(count));
}

Status DiskWriter::write(uint64_t offset, ByteView bytes) {
  if (bytes.empty()) return {};
  if (offset < position_) return fail(Code::kInvalid, "a sparse file lists its parts out of order");
  if (offset > position_) {
    // Blocks already taken end with the block that position_ is in: runs are taken for bytes at
    // hand.
    const uint64_t in_block = std::min(block_room_, offset - position_);
    TRY(append_zeros(in_block));
    if (offset > position_) {
      position_ = offset / kDiskBlock * kDiskBlock;
      TRY(append_zeros(offset - position_));
    }
  }
  return append(bytes);
}

Result<std::vector<Extent>> DiskWriter::end_file() {
  if (block_room_ != 0) TRY(append_zeros(block_room_));
  position_ = 0;
  return std::exchange(extents_, {});
}

void DiskWriter::discard(const std::vector<Extent>& extents) {
  if (extents.empty() || !flush()) return;
  // Best effort: a host file system without punching keeps the bytes, and the guest never sees
  // them.
  for (const Extent& extent : extents)
    (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(extent.physical * kDiskBlock),
                      static_cast<off_t>(uint64_t{extent.count} * kDiskBlock));
}

Status DiskWriter::finish(const FileTree& tree) {
  TRY(flush());
  TRY(fs_->write_tree(tree, free_.start));
  TRY(fs_->close());
  if (::fsync(fd_.get()) < 0) return fail_errno(errno, "fsync of the image's disk");
  return {};
}

}  // namespace sandbox
