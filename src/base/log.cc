#include "base/log.h"

#include <unistd.h>

#include <cstdlib>

#include "base/clock.h"
#include "base/text.h"

namespace sandbox::log {

namespace {

std::string& program() {
  static std::string name = "sandbox";
  return name;
}

void write_line(std::string text) {
  text.push_back('\n');
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void set_program(std::string_view name) {
  program() = name;
}

void line(std::string_view text) {
  write_line(fmt::format("{}: {}", program(), escape_terminal(text)));
}

bool trace_enabled() {
  static const bool enabled = [] {
    const char* value = std::getenv("SANDBOX_TRACE");
    return value != nullptr && *value != '\0' && std::string_view(value) != "0";
  }();
  return enabled;
}

void trace(std::string_view phase) {
  if (!trace_enabled()) return;
  static const int64_t start = [] {
    const char* value = std::getenv("SANDBOX_TRACE_START");
    const auto parsed = value == nullptr ? std::nullopt : parse_decimal(value);
    if (parsed) return static_cast<int64_t>(*parsed);
    const int64_t now = monotonic_now().since_start.count();
    ::setenv("SANDBOX_TRACE_START", std::to_string(now).c_str(), 1);
    return now;
  }();
  const double ms = static_cast<double>(monotonic_now().since_start.count() - start) / 1'000'000.0;
  write_line(fmt::format("trace {:8.1f} ms  {}: {}", ms, program(), phase));
}

}  // namespace sandbox::log
