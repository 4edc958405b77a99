#include "image/file_tree.h"

#include <algorithm>

#include "base/text.h"

namespace sandbox {

namespace {

constexpr std::string_view kWhiteoutPrefix = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
// aufs kept its own bookkeeping under names with the prefix twice; they mean nothing in an image.
constexpr std::string_view kAufsPrefix = ".wh..wh.";

FileInode implied_directory() {
  FileInode inode;
  inode.kind = FileKind::kDirectory;
  inode.mode = 0755;
  return inode;
}

std::string shown(std::string_view name) {
  return escape_terminal(name.substr(0, 200));
}

// The parts of a name without "", "." and "..".
Result<std::vector<std::string_view>> clean_parts(std::string_view name) {
  if (name.size() > FileTree::kMaxPath)
    return fail(Code::kLimit, "a name of {} bytes, longer than {}: {}…", name.size(),
                FileTree::kMaxPath, shown(name));
  if (name.find('\0') != std::string_view::npos)
    return fail(Code::kInvalid, "a name with a NUL byte: {}", shown(name));
  std::vector<std::string_view> parts;
  for (const std::string_view part : split(name, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (parts.empty())
        return fail(Code::kInvalid, "the name {} leaves the image's root", shown(name));
      parts.pop_back();
      continue;
    }
    if (part.size() > FileTree::kMaxName)
      return fail(Code::kLimit, "a name part of {} bytes, longer than {}: {}…", part.size(),
                  FileTree::kMaxName, shown(part));
    parts.push_back(part);
  }
  if (parts.size() > FileTree::kMaxDepth)
    return fail(Code::kLimit, "a name {} folders deep, more than {}: {}", parts.size(),
                FileTree::kMaxDepth, shown(name));
  return parts;
}

Status check_inode(std::string_view name, const FileInode& inode) {
  if (inode.kind == FileKind::kSymlink) {
    if (inode.target.empty() || inode.target.size() > FileTree::kMaxTarget)
      return fail(Code::kInvalid, "the symbolic link {} has a target of {} bytes", shown(name),
                  inode.target.size());
    if (inode.target.find('\0') != std::string::npos)
      return fail(Code::kInvalid, "the symbolic link {} has a NUL byte in its target", shown(name));
  }
  size_t xattr_bytes = 0;
  for (const auto& [key, value] : inode.xattrs) xattr_bytes += key.size() + value.size() + 16;
  if (xattr_bytes > FileTree::kMaxXattrBytes)
    return fail(Code::kLimit, "the extended attributes of {} take {} bytes, more than {}",
                shown(name), xattr_bytes, FileTree::kMaxXattrBytes);
  return {};
}

}  // namespace

FileTree::FileTree() {
  root_.inode = new_inode(implied_directory());
  root_.children = std::make_unique<Children>();
}

void FileTree::begin_layer() {
  ++layer_;
  whiteouts_.clear();
}

Status FileTree::check_name(std::string_view name) const {
  auto parts = clean_parts(name);
  if (!parts) return fail(std::move(parts.error()));
  return {};
}

Status FileTree::count_entry() {
  if (++entries_ > kMaxEntries)
    return fail(Code::kLimit, "the image has more than {} entries", kMaxEntries);
  return {};
}

uint32_t FileTree::new_inode(FileInode inode) {
  inodes_.push_back(std::move(inode));
  return static_cast<uint32_t>(inodes_.size() - 1);
}

void FileTree::release_inode(uint32_t number) {
  FileInode& inode = inodes_[number];
  if (inode.kind != FileKind::kDirectory && --inode.links > 0) return;
  freed_.insert(freed_.end(), inode.extents.begin(), inode.extents.end());
  inode = FileInode{};
}

// The depth of the tree is bounded, and so is the recursion.
void FileTree::release(Node& node) {
  if (node.children)
    for (auto& [name, child] : *node.children) release(child);
  node.children.reset();
  release_inode(node.inode);
}

FileTree::Node& FileTree::make_directory(Node& parent, std::string_view name) {
  Node node;
  node.inode = new_inode(implied_directory());
  node.layer = layer_;
  node.children = std::make_unique<Children>();
  return parent.children->insert_or_assign(std::string(name), std::move(node)).first->second;
}

Result<FileTree::Place> FileTree::resolve(const std::vector<std::string_view>& parts,
                                          Missing missing) {
  std::vector<Node*> stack{&root_};
  std::vector<std::string> pending(parts.rbegin(), parts.rend());  // the next part is the last
  size_t hops = 0;
  while (!pending.empty()) {
    const std::string part = std::move(pending.back());
    pending.pop_back();
    if (++steps_ > kMaxSteps)
      return fail(Code::kLimit, "the image's names take more than {} look-ups", kMaxSteps);
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (stack.size() > 1) stack.pop_back();
      continue;
    }
    Node& here = *stack.back();
    auto found = here.children->find(part);
    if (found != here.children->end() && found->second.children) {
      stack.push_back(&found->second);
      continue;
    }
    if (found != here.children->end() && inodes_[found->second.inode].kind == FileKind::kSymlink) {
      if (++hops > kMaxHops)
        return fail(Code::kInvalid, "more than {} symbolic links on the way to one name", kMaxHops);
      const std::string& target = inodes_[found->second.inode].target;
      if (target.starts_with('/')) stack.resize(1);
      const auto target_parts = split(target, '/');
      pending.insert(pending.end(), target_parts.rbegin(), target_parts.rend());
      continue;
    }
    if (missing == Missing::kReport) return Place{};
    if (part.size() > kMaxName)
      return fail(Code::kLimit, "a symbolic link names a part of {} bytes", part.size());
    if (stack.size() > kMaxDepth)
      return fail(Code::kLimit, "the image has folders more than {} deep", kMaxDepth);
    if (found != here.children->end()) release(found->second);
    stack.push_back(&make_directory(here, part));
  }
  return Place{stack.back(), stack.size() - 1};
}

Status FileTree::put(std::string_view name, FileInode inode) {
  TRY(count_entry());
  ASSIGN(std::vector<std::string_view> parts, clean_parts(name));
  TRY(check_inode(name, inode));
  if (parts.empty()) {  // "./"
    if (inode.kind != FileKind::kDirectory)
      return fail(Code::kInvalid, "the image's root is not a directory");
    inodes_[root_.inode] = std::move(inode);
    return {};
  }
  const std::string_view base = parts.back();
  parts.pop_back();
  ASSIGN(const Place place, resolve(parts, Missing::kCreate));
  if (place.depth >= kMaxDepth)
    return fail(Code::kLimit, "the image has folders more than {} deep", kMaxDepth);
  const bool directory = inode.kind == FileKind::kDirectory;
  inode.links = 1;
  auto found = place.parent->children->find(base);
  if (found != place.parent->children->end()) {
    Node& node = found->second;
    if (directory && node.children) {
      inodes_[node.inode] = std::move(inode);
      node.layer = layer_;
      return {};
    }
    release(node);
    place.parent->children->erase(found);
  }
  Node node;
  node.inode = new_inode(std::move(inode));
  node.layer = layer_;
  if (directory) node.children = std::make_unique<Children>();
  place.parent->children->emplace(std::string(base), std::move(node));
  return {};
}

Status FileTree::link(std::string_view name, std::string_view target) {
  TRY(count_entry());
  ASSIGN(std::vector<std::string_view> parts, clean_parts(name));
  ASSIGN(std::vector<std::string_view> target_parts, clean_parts(target));
  if (parts.empty() || target_parts.empty())
    return fail(Code::kInvalid, "the hard link {} → {} names the root", shown(name), shown(target));
  const std::string_view target_base = target_parts.back();
  target_parts.pop_back();
  ASSIGN(const Place from, resolve(target_parts, Missing::kReport));
  const auto found =
      from.parent == nullptr ? Children::iterator{} : from.parent->children->find(target_base);
  if (from.parent == nullptr || found == from.parent->children->end())
    return fail(Code::kInvalid, "the hard link {} points at {}, which no layer contains",
                shown(name), shown(target));
  if (found->second.children)
    return fail(Code::kInvalid, "the hard link {} points at the directory {}", shown(name),
                shown(target));
  const uint32_t inode = found->second.inode;
  // ext4 keeps the count in 16 bits.
  if (inodes_[inode].links >= 65000)
    return fail(Code::kLimit, "{} has more than 65000 names", shown(target));
  ++inodes_[inode]
        .links;  // taken before the old holder of the name is released: it may be the same file
  const std::string_view base = parts.back();
  parts.pop_back();
  auto resolved = resolve(parts, Missing::kCreate);
  if (!resolved) return fail(std::move(resolved.error()));
  if (resolved->depth >= kMaxDepth)
    return fail(Code::kLimit, "the image has folders more than {} deep", kMaxDepth);
  Children& siblings = *resolved->parent->children;
  if (auto old = siblings.find(base); old != siblings.end()) {
    release(old->second);
    siblings.erase(old);
  }
  Node node;
  node.inode = inode;
  node.layer = layer_;
  siblings.emplace(std::string(base), std::move(node));
  return {};
}

bool FileTree::is_whiteout(std::string_view name) {
  const auto parts = clean_parts(name);
  return parts && !parts->empty() && parts->back().starts_with(kWhiteoutPrefix);
}

Status FileTree::whiteout(std::string_view name) {
  TRY(count_entry());
  ASSIGN(std::vector<std::string_view> parts, clean_parts(name));
  if (parts.empty()) return fail(Code::kInvalid, "the whiteout {} names nothing", shown(name));
  const std::string_view base = parts.back();
  std::string folder;
  for (size_t i = 0; i + 1 < parts.size(); ++i) folder.append(parts[i]).push_back('/');
  if (base == kOpaque) {
    whiteouts_.push_back({std::move(folder), {}});
    return {};
  }
  if (base.starts_with(kAufsPrefix)) return {};
  const std::string_view removed = base.substr(kWhiteoutPrefix.size());
  if (removed.empty() || removed == "." || removed == "..")
    return fail(Code::kInvalid, "the whiteout {} names nothing", shown(name));
  whiteouts_.push_back({std::move(folder), std::string(removed)});
  return {};
}

void FileTree::prune_children(Node& node) {
  for (auto it = node.children->begin(); it != node.children->end();)
    it = prune(it->second) ? node.children->erase(it) : std::next(it);
}

bool FileTree::prune(Node& node) {
  if (node.children) prune_children(node);
  if (node.layer == layer_) return false;
  if (node.children && !node.children->empty()) {
    // Only entries of this layer are left in it, so this layer made it, without saying how.
    inodes_[node.inode] = implied_directory();
    return false;
  }
  release(node);
  return true;
}

Status FileTree::end_layer() {
  for (const Whiteout& whiteout : whiteouts_) {
    ASSIGN(const std::vector<std::string_view> parts, clean_parts(whiteout.folder));
    ASSIGN(const Place place, resolve(parts, Missing::kReport));
    if (place.parent == nullptr) continue;
    if (whiteout.name.empty()) {
      prune_children(*place.parent);
      continue;
    }
    const auto found = place.parent->children->find(whiteout.name);
    if (found != place.parent->children->end() && prune(found->second))
      place.parent->children->erase(found);
  }
  whiteouts_.clear();
  return {};
}

const FileTree::Node* FileTree::find(std::string_view path) const {
  const Node* node = &root_;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty()) continue;
    if (!node->children) return nullptr;
    const auto found = node->children->find(part);
    if (found == node->children->end()) return nullptr;
    node = &found->second;
  }
  return node;
}

}  // namespace sandbox
