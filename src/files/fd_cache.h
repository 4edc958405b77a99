#pragma once
// The bounded set of open O_PATH descriptors: the least recently used is closed when a new one
// comes. A descriptor in use stays open through its shared owner, so one request may hold a few
// more than the capacity.

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "base/fd.h"

namespace sandbox::files {

using SharedFd = std::shared_ptr<const Fd>;

class FdCache {
 public:
  explicit FdCache(size_t capacity) : capacity_(capacity) {}

  // nullptr when absent.
  SharedFd get(uint64_t id) {
    const auto it = index_.find(id);
    if (it == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return it->second->second;
  }
  void put(uint64_t id, SharedFd fd) {
    erase(id);
    while (!order_.empty() && order_.size() >= capacity_) erase(order_.back().first);
    order_.emplace_front(id, std::move(fd));
    index_[id] = order_.begin();
  }
  void erase(uint64_t id) {
    const auto it = index_.find(id);
    if (it == index_.end()) return;
    order_.erase(it->second);
    index_.erase(it);
  }
  void clear() {
    order_.clear();
    index_.clear();
  }
  [[nodiscard]] size_t size() const { return order_.size(); }

 private:
  using Order = std::list<std::pair<uint64_t, SharedFd>>;
  size_t capacity_;
  Order order_;
  std::unordered_map<uint64_t, Order::iterator> index_;
};

}  // namespace sandbox::files
