#pragma once
// HostName: a DNS host name that cannot be wrong.
//
// Invariants: ASCII lower case; 1 or more labels of 1..63 bytes out of a-z 0-9 - _ joined by single
// dots; at most 253 bytes; no trailing dot; the last label is no number (so neither "127.0.0.1" nor
// "127.1", "0x7f.1" or "2130706433", which some resolvers read as addresses, is a HostName).

#include <compare>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace sandbox::policy {

class HostName {
 public:
  // From text: a rule, a ServerName, a Host header without its port. Upper case is folded, one
  // trailing dot is dropped. Errors name the offending character: "character ' ' at position 4 is
  // not allowed in a host name".
  static Result<HostName> parse(std::string_view text);

  // From the labels of a DNS message, without the root label. A dot or NUL inside a label is an
  // error, never a separator.
  static Result<HostName> from_labels(std::span<const ByteView> labels);

  [[nodiscard]] const std::string& text() const { return text_; }

  // True for the zone itself and every name below it, at a label boundary: "a.b.example.org" is in
  // "example.org", "badexample.org" is not.
  [[nodiscard]] bool in_zone(const HostName& zone) const;

  friend auto operator<=>(const HostName&, const HostName&) = default;

 private:
  explicit HostName(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

// The alias of the host's own loopback, reachable only by a rule "host.internal:PORT". Never looked
// up anywhere.
const HostName& host_internal();

// True for text that a C library would read as an IPv4 address: four decimal parts, and the
// historic spellings "127.1", "0x7f.1", "017700000001".
bool is_numeric_spelling(std::string_view text);

}  // namespace sandbox::policy

template <>
struct std::hash<sandbox::policy::HostName> {
  size_t operator()(const sandbox::policy::HostName& name) const noexcept {
    return std::hash<std::string>()(name.text());
  }
};
