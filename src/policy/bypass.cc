#include "policy/bypass.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace sandbox::policy {

namespace {

std::string_view without_brackets(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return text;
  return text.substr(1, text.size() - 2);
}

// "10.0.0.0/8". Curl takes 10.1.2.3/8 for the same; a rule of our own would refuse that as a typing
// error.
std::optional<Cidr> network_of(std::string_view address_text, std::string_view length_text) {
  const auto address = IpAddress::parse(without_brackets(address_text));
  const auto length = parse_decimal(length_text);
  if (!address || !length) return std::nullopt;
  const uint64_t whole = address->is_v4() ? 32 : 128;
  if (*length > whole) return std::nullopt;
  auto bytes = address->bytes();
  for (size_t bit = 128 - whole + *length; bit < 128; ++bit)
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] & ~(0x80U >> (bit % 8)));
  return Cidr::parse(fmt::format("{}/{}", IpAddress::from_bytes(bytes).text(), *length));
}

}  // namespace

void BypassList::add(std::string_view entry) {
  if (entry == "*") {
    everything_ = true;
  } else if (const size_t slash = entry.find('/'); slash != std::string_view::npos) {
    const auto network = network_of(entry.substr(0, slash), entry.substr(slash + 1));
    if (network) networks_.push_back(*network);
  } else if (const auto address = IpAddress::parse(without_brackets(entry))) {
    networks_.push_back(Cidr::host(*address));
  } else {
    if (entry.starts_with('.')) entry.remove_prefix(1);
    if (auto name = HostName::parse(entry)) zones_.push_back(std::move(*name));
  }
}

BypassList BypassList::parse(std::string_view text) {
  BypassList out;
  constexpr std::string_view kSeparators = ", \t\r\n";
  for (size_t entries = 0; entries < kMaxEntries; ++entries) {
    text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size()));
    if (text.empty()) break;
    const size_t end = std::min(text.find_first_of(kSeparators), text.size());
    out.add(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

bool BypassList::matches(const HostName& name) const {
  return everything_ || std::any_of(zones_.begin(), zones_.end(),
                                    [&](const HostName& zone) { return name.in_zone(zone); });
}

bool BypassList::matches(const IpAddress& address) const {
  return everything_ || std::any_of(networks_.begin(), networks_.end(),
                                    [&](const Cidr& network) { return network.contains(address); });
}

}  // namespace sandbox::policy
