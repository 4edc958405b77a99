#pragma once
// What a run was refused, in a few words for the person who started it.

#include <string>
#include <vector>

#include "audit/record.h"

namespace sandbox::cli {

// Collects denials and says them once each.
class Denials {
 public:
  void add(const audit::Record& record);  // others than denials are passed over
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  // "denied: example.org (no-allow-rule), tcp 192.0.2.1:80 (unresolved-address) and 3 more"
  [[nodiscard]] std::string summary() const;
  // The flag that would allow the first of them, or empty where no flag does: "--allow
  // example.org".
  [[nodiscard]] std::string flag() const;

 private:
  struct Entry {
    std::string target;
    std::string reason;
    std::string text;
    std::string allow;
  };
  std::vector<Entry> entries_;
};

}  // namespace sandbox::cli
