#pragma once
// Finds a flow by its tuple: open addressing with linear probing, twice as many slots as flows,
// fixed in size. The hash is keyed, because the guest chooses the tuples.

#include <cstdint>
#include <memory>
#include <vector>

#include "net/tcp/flow.h"

namespace sandbox::tcp {

class FlowTable {
 public:
  // Flows are named by their index in `pool`, which may grow later and must outlive the table.
  FlowTable(const std::vector<std::unique_ptr<Flow>>& pool, size_t max_flows, uint64_t key);

  [[nodiscard]] Flow* find(const Tuple& tuple) const;
  void insert(const Flow& flow);  // its tuple is not in the table
  void erase(const Flow& flow);   // nothing happens when another flow, or none, has its tuple
  [[nodiscard]] size_t size() const { return size_; }

 private:
  static constexpr uint16_t kEmpty = UINT16_MAX;
  [[nodiscard]] size_t home(const Tuple& tuple) const;
  [[nodiscard]] size_t slot_of(const Tuple& tuple) const;

  const std::vector<std::unique_ptr<Flow>>& pool_;
  std::vector<uint16_t> slots_;
  size_t mask_;
  uint64_t key_;
  size_t size_ = 0;
};

}  // namespace sandbox::tcp
