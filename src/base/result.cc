#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace sandbox {

namespace {

Code code_for(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EEXIST:
      return Code::kExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermission;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      return Code::kLimit;
    case ENOSYS:
    case EOPNOTSUPP:
      return Code::kUnavailable;
    default:
      return Code::kIo;
  }
}

}  // namespace

Error errno_error(int number, std::string_view activity) {
  return Error{code_for(number),
               fmt::format("{}: {}", activity, std::generic_category().message(number))};
}

}  // namespace sandbox
