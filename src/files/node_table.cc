#include "files/node_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <functional>

namespace sandbox::files {

namespace {

// A file with more hard links than this is found under the names seen last.
constexpr size_t kMostLinks = 8;

size_t mix(size_t a, size_t b) {
  return a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2));
}

}  // namespace

size_t NodeTable::KeyHash::operator()(const FileKey& key) const {
  const std::hash<uint64_t> hash;
  return mix(mix(hash(key.inode), hash(key.device)), hash(static_cast<uint64_t>(key.born_ns)));
}

size_t NodeTable::NameHash::operator()(const NameRef& ref) const {
  return mix(std::hash<std::string_view>()(ref.name), std::hash<uint64_t>()(ref.parent));
}

NodeTable::NodeTable(size_t limit) : limit_(limit) {}

void NodeTable::set_root(const FileKey& key, uint32_t type) {
  Node& root = nodes_[kRootNode];
  root.id = kRootNode;
  root.key = key;
  root.type = type;
  root.lookups = 1;
  by_key_[key] = kRootNode;
}

Node* NodeTable::find(NodeId id) {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second;
}

Node* NodeTable::child(NodeId parent, std::string_view name) {
  const auto it = by_name_.find(NameRef{parent, name});
  return it == by_name_.end() ? nullptr : find(it->second);
}

void NodeTable::add_name(Node& node, NodeId parent, std::string_view name) {
  if (node.id == kRootNode) return;  // a bind mount or a loop may show it again; it needs no name
  const auto held = by_name_.find(NameRef{parent, name});
  if (held != by_name_.end()) {
    if (held->second == node.id) {
      if (node.links.back().parent == parent && node.links.back().name == name) return;
    }
    remove_name(parent, name);
  }
  if (S_ISDIR(node.type) || node.links.size() >= kMostLinks) {
    const Link oldest = node.links.empty() ? Link{} : node.links.front();
    if (!node.links.empty()) remove_name(oldest.parent, oldest.name);
  }
  node.links.push_back(Link{parent, std::string(name)});
  by_name_.emplace(node.links.back(), node.id);
}

Node* NodeTable::look_up(const FileKey& key, uint32_t type, NodeId parent, std::string_view name) {
  Node* node = nullptr;
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    node = &nodes_.at(it->second);
  } else {
    if (nodes_.size() >= limit_) return nullptr;
    const NodeId id = next_++;
    node = &nodes_[id];
    node->id = id;
    node->key = key;
    by_key_[key] = id;
  }
  node->type = type;
  ++node->lookups;
  add_name(*node, parent, name);
  return node;
}

bool NodeTable::forget(NodeId id, uint64_t count, Node* last) {
  Node* node = find(id);
  if (node == nullptr || id == kRootNode) return false;
  node->lookups -= std::min(node->lookups, count);
  if (node->lookups > 0) return false;
  for (const Link& link : node->links) by_name_.erase(link);
  by_key_.erase(node->key);
  if (last != nullptr) *last = std::move(*node);
  nodes_.erase(id);
  return true;
}

void NodeTable::adopt_name(const FileKey& key, NodeId parent, std::string_view name) {
  const auto it = by_key_.find(key);
  if (it != by_key_.end()) add_name(nodes_.at(it->second), parent, name);
}

void NodeTable::remove_name(NodeId parent, std::string_view name) {
  const auto it = by_name_.find(NameRef{parent, name});
  if (it == by_name_.end()) return;
  if (Node* node = find(it->second); node != nullptr)
    std::erase_if(node->links, [&](const Link& l) { return l.parent == parent && l.name == name; });
  by_name_.erase(it);
}

void NodeTable::rename(NodeId from, std::string_view from_name, NodeId to,
                       std::string_view to_name) {
  Node* moved = child(from, from_name);
  remove_name(from, from_name);
  remove_name(to, to_name);
  if (moved != nullptr) add_name(*moved, to, to_name);
}

void NodeTable::exchange(NodeId from, std::string_view from_name, NodeId to,
                         std::string_view to_name) {
  Node* first = child(from, from_name);
  Node* second = child(to, to_name);
  remove_name(from, from_name);
  remove_name(to, to_name);
  if (first != nullptr) add_name(*first, to, to_name);
  if (second != nullptr) add_name(*second, from, from_name);
}

}  // namespace sandbox::files
