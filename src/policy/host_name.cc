#include "policy/host_name.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace sandbox::policy {

namespace {

constexpr size_t kMaxLabel = 63;  // RFC 1035 section 2.3.4
constexpr size_t kMaxName = 253;  // 255 bytes on the wire, less the first length and the root label

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// 'x', or '\x00' for what a terminal should not see.
std::string quoted(char c) {
  return fmt::format("'{}'", escape_terminal(std::string(1, c)));
}

tl::unexpected<Error> bad_byte(std::string_view text, size_t at) {
  Error error{Code::kInvalid,
              fmt::format("character {} at position {} is not allowed in a host name",
                          quoted(text[at]), at + 1)};
  if (static_cast<unsigned char>(text[at]) >= 0x80)
    error.hint = "write an international name in its xn-- form";
  return fail(std::move(error));
}

Status check_label(std::string_view label) {
  if (label.empty())
    return fail(Code::kInvalid, "an empty label (two dots, or a dot at the start)");
  if (label.size() > kMaxLabel)
    return fail(Code::kInvalid, "a label of {} bytes; DNS allows {}", label.size(), kMaxLabel);
  return {};
}

// "1", "0x7f", "0X": what inet_aton reads as one part of an address. White space and signs are no
// name bytes anyway.
bool is_number(std::string_view label) {
  if (label.starts_with("0x") || label.starts_with("0X"))
    return label.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string_view::npos;
  return !label.empty() && label.find_first_not_of("0123456789") == std::string_view::npos;
}

Status check_name(std::string_view lower) {
  if (lower.empty()) return fail(Code::kInvalid, "an empty host name");
  if (lower.size() > kMaxName)
    return fail(Code::kInvalid, "a name of {} bytes; DNS allows {}", lower.size(), kMaxName);
  for (size_t i = 0; i < lower.size(); ++i)
    if (lower[i] != '.' && !is_name_byte(lower[i])) return bad_byte(lower, i);
  const auto labels = split(lower, '.');
  for (const auto label : labels) TRY(check_label(label));
  if (is_number(labels.back()))
    return fail(Code::kInvalid,
                "'{}' ends in a number: an address or a numeric spelling of one, not a name",
                lower);
  return {};
}

}  // namespace

Result<HostName> HostName::parse(std::string_view text) {
  if (text.size() > 1 && text.ends_with('.') && !text.ends_with("..")) text.remove_suffix(1);
  std::string lower = to_lower(text);
  TRY(check_name(lower));
  return HostName(std::move(lower));
}

Result<HostName> HostName::from_labels(std::span<const ByteView> labels) {
  std::string joined;
  for (const ByteView label : labels) {
    TRY(check_label(as_text(label)));
    if (as_text(label).find('.') != std::string_view::npos)
      return fail(Code::kInvalid, "a dot inside a label");
    if (joined.size() + 1 + label.size() > kMaxName + 1)
      return fail(Code::kInvalid, "a name longer than the {} bytes DNS allows", kMaxName);
    if (!joined.empty()) joined += '.';
    joined += as_text(label);
  }
  joined = to_lower(joined);
  TRY(check_name(joined));
  return HostName(std::move(joined));
}

bool HostName::in_zone(const HostName& zone) const {
  const std::string& apex = zone.text_;
  if (!text_.ends_with(apex)) return false;
  return text_.size() == apex.size() || text_[text_.size() - apex.size() - 1] == '.';
}

const HostName& host_internal() {
  static const HostName name = *HostName::parse("host.internal");
  return name;
}

bool is_numeric_spelling(std::string_view text) {
  const auto parts = split(text, '.');
  return parts.size() <= 4 && std::all_of(parts.begin(), parts.end(), is_number);
}

}  // namespace sandbox::policy
