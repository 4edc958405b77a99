#pragma once
// Every fallible function returns Result<T>: a value, or an Error whose message is a sentence for
// people.
//
// Conventions:
//   * message: what happened, naming the thing that is wrong ("rule 'a.*.b': a wildcard may only
//   lead"), no trailing dot.
//   * hint: what to do next, usually a command; empty where there is nothing useful to say.
//   * code: what a caller may branch on. Text is never parsed.
// Exceptions of libraries are caught at the border where the library is called.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace sandbox {

enum class Code {
  kInvalid,      // input that cannot be what it claims to be
  kNotFound,     // a named thing does not exist
  kExists,       // a named thing exists already
  kPermission,   // the host refuses
  kUnavailable,  // a precondition of the host is missing (program, device, kernel feature)
  kLimit,        // a documented limit was reached
  kProtocol,     // a peer broke its protocol
  kTampered,     // bytes differ from the digest they were promised to have
  kCancelled,    // the user asked to stop
  kIo,           // the operating system reported an error
  kInternal,     // a broken invariant that could be reported instead of aborting
};

struct [[nodiscard]] Error {
  Code code = Code::kInternal;
  std::string message;
  std::string hint = {};

  // Puts the outer activity in front: "reading policy.toml: no such file".
  Error while_doing(std::string_view activity) && {
    message = fmt::format("{}: {}", activity, message);
    return std::move(*this);
  }
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<void>;

template <class... Args>
tl::unexpected<Error> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

// An error made from errno: "open /x: Permission denied". The code follows from the number.
[[nodiscard]] Error errno_error(int number, std::string_view activity);
inline tl::unexpected<Error> fail_errno(int number, std::string_view activity) {
  return tl::unexpected<Error>(errno_error(number, activity));
}

}  // namespace sandbox

#define SANDBOX_CONCAT_(a, b) a##b
#define SANDBOX_CONCAT(a, b) SANDBOX_CONCAT_(a, b)
// TRY(expr): returns the error of expr from the enclosing function, or goes on.
#define TRY(...)                                                             \
  do {                                                                       \
    auto try_result = (__VA_ARGS__);                                         \
    if (!try_result) return ::tl::unexpected(std::move(try_result).error()); \
  } while (false)
// ASSIGN(auto value, expr): the same, keeping the value.
#define ASSIGN(target, ...)                                                               \
  auto SANDBOX_CONCAT(assign_result_, __LINE__) = (__VA_ARGS__);                          \
  if (!SANDBOX_CONCAT(assign_result_, __LINE__))                                          \
    return ::tl::unexpected(std::move(SANDBOX_CONCAT(assign_result_, __LINE__)).error()); \
  target = std::move(*SANDBOX_CONCAT(assign_result_, __LINE__))
