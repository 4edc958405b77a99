#pragma once
// Long work reports through this; the command line shows a line on a terminal and plain lines
// otherwise.

#include <cstdint>
#include <string_view>

namespace sandbox {

class Progress {
 public:
  virtual ~Progress() = default;
  // A new step: "pulling debian:bookworm-slim", "writing the disk".
  virtual void step(std::string_view what) = 0;
  // How far the step is; total 0 when unknown. Called often; the receiver thins it out.
  virtual void advance(uint64_t done, uint64_t total) = 0;
  // True when the user asked to stop (Ctrl-C); long loops ask between steps and return
  // Code::kCancelled.
  [[nodiscard]] virtual bool cancelled() const { return false; }
};

class NoProgress final : public Progress {
 public:
  void step(std::string_view) override {}
  void advance(uint64_t, uint64_t) override {}
};

}  // namespace sandbox
