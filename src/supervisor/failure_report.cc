#include "supervisor/failure_report.h"

#include <algorithm>

namespace sandbox {

std::string failure_report(const Error& error) {
  std::string text = error.message;
  std::replace(text.begin(), text.end(), '\n', ' ');  // quoted output may have several lines
  if (!error.hint.empty()) text += "\n" + error.hint;
  return text;
}

Error error_from_report(std::string_view report) {
  const size_t end = report.find('\n');
  const std::string_view hint = end == std::string_view::npos ? "" : report.substr(end + 1);
  return {Code::kUnavailable, std::string(report.substr(0, end)), std::string(hint)};
}

}  // namespace sandbox
