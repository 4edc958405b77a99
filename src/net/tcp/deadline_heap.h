#pragma once
// The flows that wait for a time, earliest first: a binary heap that knows each flow's place in it.

#include <vector>

#include "base/clock.h"
#include "net/tcp/flow.h"

namespace sandbox::tcp {

class DeadlineHeap {
 public:
  // Wakes for `flow` at `at` or earlier: a deadline that only moves later keeps its old key until
  // that fires.
  void wake_by(Flow& flow, Instant at);
  void remove(Flow& flow);
  // The earliest flow whose key is reached, taken out of the heap; null when there is none.
  Flow* pop_due(Instant now);
  [[nodiscard]] Instant earliest() const;
  [[nodiscard]] bool consistent() const;

 private:
  void place(size_t index, Flow& flow);
  void rise(size_t index);
  void sink(size_t index);

  std::vector<Flow*> heap_;
};

}  // namespace sandbox::tcp
