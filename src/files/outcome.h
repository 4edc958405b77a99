#pragma once
// The result of one file operation: a value or an errno for the guest. Unlike Result it carries no
// sentence: an errno is all that a FUSE reply can say, and it is the ordinary end of an ordinary
// request.

#include <cerrno>
#include <tl/expected.hpp>
#include <utility>

namespace sandbox::files {

struct Errno {
  int value = EIO;
};

template <class T>
class [[nodiscard]] Outcome : public tl::expected<T, Errno> {
 public:
  using tl::expected<T, Errno>::expected;
};

inline tl::unexpected<Errno> refuse(int number) {
  return tl::unexpected<Errno>(Errno{number});
}
inline tl::unexpected<Errno> refuse(Errno error) {
  return tl::unexpected<Errno>(error);
}

// What a system call that returns -1 on failure means.
inline Outcome<void> outcome_of(long rc) {
  if (rc < 0) return refuse(errno);
  return {};
}

}  // namespace sandbox::files
