// {fmt}, compiled once. Debian has it as a shared library, which the static sentry cannot link, or
// as headers alone, which cost each translation unit seconds; so its implementation is instantiated
// here for all programs.

#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API char decimal_point_impl(locale_ref);
template FMT_API thousands_sep_result<char> thousands_sep_impl(locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
