// Theory: a rule is cut from the outside in. First every byte must be one that some rule may
// contain, so that a space, a comma or a control byte is reported as what it is; then the scope
// goes, then "@range", then the port, and what is left is a name, a zone or an address. Each cut
// knows what people write there by mistake and says what to write instead.

#include "policy/host_pattern.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"

namespace sandbox::policy {

namespace {

constexpr size_t kMaxRule = 400;  // scope, name of 253, bracketed range and port fit

struct ScopeName {
  std::string_view text;
  Scope scope;
};
constexpr std::array<ScopeName, 4> kScopes = {{{"udp", Scope::kUdp},
                                               {"icmp", Scope::kIcmp},
                                               {"plain", Scope::kPlain},
                                               {"proxy", Scope::kProxy}}};

std::string_view scope_text(Scope scope) {
  for (const auto& known : kScopes)
    if (known.scope == scope) return known.text;
  return {};
}

bool is_rule_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-*/:@[]").find(c) != std::string_view::npos;
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

// The network that has this address in it, for the hint about host bits.
IpAddress masked(const IpAddress& address, size_t bits) {
  auto bytes = address.bytes();
  for (size_t bit = bits; bit < 128; ++bit)
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] & ~(0x80U >> (bit % 8)));
  return IpAddress::from_bytes(bytes);
}

IpAddress last_of(const Cidr& range) {
  auto bytes = range.base().bytes();
  const size_t bits = static_cast<size_t>(range.prefix()) + (range.base().is_v4() ? 96 : 0);
  for (size_t bit = bits; bit < 128; ++bit)
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] | (0x80U >> (bit % 8)));
  return IpAddress::from_bytes(bytes);
}

// Both ends lie in a never-range and the range is narrower than any gap between two of them (0/8
// ... 127/8 ... 169.254/16 need at least 4 equal leading bits; ::/128 ... fe80::/10 at least 1).
bool wholly_never(const Cidr& range) {
  const int least = range.base().is_v4() ? 4 : 1;
  return range.prefix() >= least && is_never_by_name(range.base()) &&
         is_never_by_name(last_of(range));
}

// "192.0.2.1", "10.0.0.0/8", "[2001:db8::]", "[2001:db8::/32]"
std::string range_text(const Cidr& range) {
  const bool v4 = range.base().is_v4();
  const bool single = range.prefix() == (v4 ? 32 : 128);
  const std::string bare = single ? range.base().text() : range.text();
  return v4 ? bare : fmt::format("[{}]", bare);
}

}  // namespace

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  Result<HostPattern> parse() {
    TRY(check_bytes());
    ASSIGN(std::string_view rest, take_scope());
    ASSIGN(rest, take_range(rest));
    ASSIGN(rest, take_port(rest, "host"));
    ASSIGN(HostPattern pattern, target(rest));
    pattern.scope_ = scope_;
    pattern.port_ = port_;
    pattern.range_ = range_;
    TRY(check_combination(pattern));
    return pattern;
  }

 private:
  tl::unexpected<Error> reject(std::string reason, std::string hint = {}) const {
    std::string shown = escape_terminal(text_.substr(0, kMaxRule));
    return fail(Error{Code::kInvalid, fmt::format("'{}': {}", shown, reason), std::move(hint)});
  }

  tl::unexpected<Error> reject(Error error) const {
    return reject(std::move(error.message), std::move(error.hint));
  }

  tl::unexpected<Error> reject_byte(size_t at, std::string_view why, std::string hint = {}) const {
    return reject(fmt::format("character '{}' at position {}: {}",
                              escape_terminal(text_.substr(at, 1)), at + 1, why),
                  std::move(hint));
  }

  [[nodiscard]] size_t offset(std::string_view part) const {
    return static_cast<size_t>(part.data() - text_.data());
  }

  Status check_bytes() const {
    if (text_.empty()) return reject("the rule is empty", "write a host, such as example.org");
    if (text_.size() > kMaxRule) return reject(fmt::format("longer than {} bytes", kMaxRule));
    if (const size_t at = text_.find("://"); at != std::string_view::npos)
      return reject_byte(at, "a rule has no URL scheme",
                         fmt::format("write {}", host_of_url(text_.substr(at + 3))));
    const auto bad = std::find_if_not(text_.begin(), text_.end(), is_rule_byte);
    if (bad == text_.end()) return {};
    const auto at = static_cast<size_t>(bad - text_.begin());
    if (*bad == ',')
      return reject_byte(at, "one rule names one host", "repeat the flag for each host");
    if (*bad == ' ' || *bad == '\t')
      return reject_byte(at, "a rule has no white space", "quote each host on its own");
    if (static_cast<unsigned char>(*bad) >= 0x80)
      return reject_byte(at, "not ASCII", "write an international name in its xn-- form");
    return reject_byte(at, "not allowed in a rule");
  }

  static std::string host_of_url(std::string_view rest) {
    const std::string_view host = rest.substr(0, rest.find_first_of("/?#"));
    return host.empty() ? "the host alone" : escape_terminal(host);
  }

  // "udp/host" → "host". A '/' that belongs to a network or follows a bracket is left where it is.
  Result<std::string_view> take_scope() {
    const size_t slash = text_.find('/');
    const std::string_view word = text_.substr(0, slash);
    if (slash == std::string_view::npos || !is_word(word)) return text_;
    const std::string lower = to_lower(word);
    const auto known = std::find_if(kScopes.begin(), kScopes.end(),
                                    [&](const ScopeName& s) { return s.text == lower; });
    if (known == kScopes.end()) return unknown_scope(slash, lower);
    scope_ = known->scope;
    return text_.substr(slash + 1);
  }

  tl::unexpected<Error> unknown_scope(size_t slash, const std::string& word) const {
    if (word == "tcp")
      return reject_byte(slash, "there is no scope 'tcp/'",
                         fmt::format("TCP needs no scope: write {}", text_.substr(slash + 1)));
    std::vector<std::string_view> known;
    known.reserve(std::size(kScopes));
    for (const auto& scope : kScopes) known.push_back(scope.text);
    std::string hint = "the scopes are udp/, icmp/, plain/ and proxy/";
    if (const auto near = suggest(word, known)) hint = fmt::format("did you mean {}/?", *near);
    return reject_byte(slash, "only a scope or an address takes a slash", std::move(hint));
  }

  // "name@range[:port]" → "name"; keeps range and port.
  Result<std::string_view> take_range(std::string_view rest) {
    const size_t at = rest.find('@');
    if (at == std::string_view::npos) return rest;
    const std::string_view name = rest.substr(0, at);
    ASSIGN(const std::string_view range, take_port(rest.substr(at + 1), "range"));
    const auto parsed = address_or_network(range);
    if (!parsed && parsed.error().code != Code::kNotFound) return reject(parsed.error());
    if (!parsed)
      return reject_byte(offset(name) + at, "after '@' comes the range a name may resolve to",
                         "write NAME@10.0.0.0/8 or NAME@[fd00::/8]");
    if (wholly_never(*parsed))
      return reject(fmt::format("'@{}': no name may lead to loopback, link-local or multicast",
                                range_text(*parsed)),
                    "for a service on the host's loopback write host.internal:PORT");
    range_ = *parsed;
    return name;
  }

  // "host:443" → "host", "[v6]:443" → "[v6]".
  Result<std::string_view> take_port(std::string_view rest, std::string_view what) {
    const size_t bracket = rest.rfind(']');
    if (rest.starts_with('[') && bracket == std::string_view::npos) return rest;  // reported later
    const size_t from = bracket == std::string_view::npos ? 0 : bracket;
    const size_t colon = rest.find(':', from);
    if (colon == std::string_view::npos) return rest;
    if (rest.find(':', colon + 1) != std::string_view::npos) {
      if (IpAddress::parse(rest.substr(0, rest.find('/'))))
        return reject_byte(offset(rest) + colon, "an IPv6 address needs brackets",
                           fmt::format("write [{}]", rest));
      return reject_byte(offset(rest) + rest.find(':', colon + 1), "a second ':'");
    }
    if (colon == 0) return reject_byte(offset(rest), fmt::format("no {} before the port", what));
    if (port_) return reject_byte(offset(rest) + colon, "a second port");
    const auto number = parse_decimal(rest.substr(colon + 1));
    if (!number || *number == 0 || *number > 65535)
      return reject(
          fmt::format("port '{}' is not a number from 1 to 65535", rest.substr(colon + 1)),
          colon + 1 == rest.size() ? "leave the ':' away to allow every port" : "");
    port_ = static_cast<uint16_t>(*number);
    return rest.substr(0, colon);
  }

  Result<HostPattern> target(std::string_view rest) {
    if (rest.empty()) return reject("no host", "write a host, such as example.org");
    if (rest.find('*') != std::string_view::npos) return zone(rest);
    auto network = address_or_network(rest);
    if (network) {
      if (range_) return reject("'@' belongs to a name, not to an address");
      return HostPattern(*network);
    }
    if (network.error().code != Code::kNotFound) return reject(std::move(network).error());
    auto name = HostName::parse(rest);
    if (!name) return reject(std::move(name).error());
    return HostPattern(std::move(*name));
  }

  Result<HostPattern> zone(std::string_view rest) {
    const size_t star = rest.find('*');
    if (rest == "*")
      return reject_byte(offset(rest), "a wildcard needs a zone",
                         "name the zones, such as *.example.org");
    if (star != 0)
      return reject_byte(offset(rest) + star, "a wildcard may only lead, as in *.example.org");
    if (rest[1] != '.')
      return reject_byte(offset(rest), "a wildcard is followed by a dot",
                         fmt::format("write *.{}", rest.substr(1)));
    const std::string_view apex = rest.substr(2);
    if (apex.empty())
      return reject_byte(offset(rest), "a wildcard needs a zone", "write *.example.org");
    if (const size_t second = apex.find('*'); second != std::string_view::npos)
      return reject_byte(offset(apex) + second, "one wildcard, at the start, covers every depth");
    if (apex.find('/') != std::string_view::npos)
      return reject_byte(offset(apex) + apex.find('/'), "a name has no path");
    auto name = HostName::parse(apex);
    if (!name) return reject(std::move(name).error());
    if (name->text().find('.') == std::string::npos)
      return reject_byte(offset(rest),
                         "a wildcard over a top-level domain allows what anyone may register",
                         fmt::format("name the zones, such as *.example.{}", name->text()));
    return HostPattern(Zone{std::move(*name)});
  }

  // kNotFound: looks like a name. Any other error: meant as an address and wrong.
  static Result<Cidr> address_or_network(std::string_view text) {
    if (text.starts_with('[')) return bracketed(text);
    const size_t slash = text.find('/');
    const std::string_view host = text.substr(0, slash);
    if (const auto v4 = Ipv4::parse(host))
      return slash == std::string_view::npos ? Result<Cidr>(Cidr::host(*v4))
                                             : network(*v4, text.substr(slash + 1), false);
    if (is_numeric_spelling(host)) return numeric_spelling(host);
    if (text.find_first_of("[]") != std::string_view::npos)
      return fail(Code::kInvalid, "a bracket may only surround a whole IPv6 address");
    if (slash != std::string_view::npos)
      return fail(Error{Code::kInvalid,
                        fmt::format("character '/' after '{}': a name has no path", host),
                        host.empty() ? "write the host alone" : fmt::format("write {}", host)});
    return fail(Code::kNotFound, "not an address");
  }

  static Result<Cidr> bracketed(std::string_view text) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos)
      return fail(Code::kInvalid, "character '[' is never closed by ']'");
    const std::string_view inside = text.substr(1, close - 1);
    const std::string_view after = text.substr(close + 1);
    const size_t slash = inside.find('/');
    const std::string_view address_text = inside.substr(0, slash);
    const auto address = IpAddress::parse(address_text);
    if (!address || address_text.find(':') == std::string_view::npos)
      return fail(Error{Code::kInvalid,
                        fmt::format("'{}' in brackets is not an IPv6 address", inside),
                        address ? fmt::format("write {}", inside) : ""});
    const bool inner = slash != std::string_view::npos;
    if (after.empty() && !inner) return Cidr::host(*address);
    if (after.empty()) return network(*address, inside.substr(slash + 1), true);
    if (inner || !after.starts_with('/'))
      return fail(Code::kInvalid, "'{}' after the bracket is neither ':PORT' nor '/LENGTH'", after);
    return network(*address, after.substr(1), true);
  }

  static Result<Cidr> network(const IpAddress& address, std::string_view length, bool v6) {
    const size_t most = v6 ? 128 : 32;
    const auto bits = parse_decimal(length);
    if (!bits || *bits > most)
      return fail(Code::kInvalid, "prefix length '{}' is not a number from 0 to {}", length, most);
    const std::string base = v6 ? ipv6_text(address) : address.text();
    if (const auto range = Cidr::parse(fmt::format("{}/{}", base, *bits))) return *range;
    const IpAddress start = masked(address, *bits + (v6 ? 0 : 96));
    const std::string shown = v6 ? fmt::format("[{}/{}]", ipv6_text(start), *bits)
                                 : fmt::format("{}/{}", start.text(), *bits);
    return fail(Error{Code::kInvalid,
                      fmt::format("'{}/{}' has bits set below its prefix", base, *bits),
                      fmt::format("write {}", shown)});
  }

  // IpAddress::text() shows a mapped address as IPv4; here the length counts from the IPv6 form.
  static std::string ipv6_text(const IpAddress& address) {
    char buffer[INET6_ADDRSTRLEN];
    return ::inet_ntop(AF_INET6, address.bytes().data(), buffer, sizeof buffer);
  }

  static tl::unexpected<Error> numeric_spelling(std::string_view host) {
    Error error{
        Code::kInvalid,
        fmt::format("'{}' is a numeric spelling, not four decimal numbers of 0 to 255", host)};
    in_addr meant{};
    if (::inet_aton(std::string(host).c_str(), &meant) != 0)
      error.hint = fmt::format("some programs read it as {}", Ipv4{ntohl(meant.s_addr)}.text());
    return fail(std::move(error));
  }

  Status check_combination(const HostPattern& pattern) const {
    if (scope_ == Scope::kIcmp && port_)
      return reject("ping has no port", fmt::format("leave ':{}' away", *port_));
    if ((scope_ == Scope::kPlain || scope_ == Scope::kProxy) && !port_)
      return reject(fmt::format("{}/ needs a port", scope_text(scope_)),
                    fmt::format("write {}:PORT", pattern.text()));
    TRY(check_localhost(pattern));
    return check_host_internal(pattern);
  }

  Status check_localhost(const HostPattern& pattern) const {
    static const HostName kLocalhost = *HostName::parse("localhost");
    const auto* name = std::get_if<HostName>(&pattern.target_);
    const auto* zone = std::get_if<Zone>(&pattern.target_);
    const HostName* host = name != nullptr ? name : zone != nullptr ? &zone->apex : nullptr;
    if (host == nullptr || !host->in_zone(kLocalhost)) return {};
    return reject("localhost is the sandbox itself and needs no rule",
                  "for a service on the host's loopback write host.internal:PORT");
  }

  Status check_host_internal(const HostPattern& pattern) const {
    const auto* zone = std::get_if<Zone>(&pattern.target_);
    if (zone != nullptr && zone->apex.in_zone(host_internal()))
      return reject("host.internal is one host and has none below it", "write host.internal:PORT");
    if (!pattern.is_host_internal()) return {};
    if (!port_) return reject("host.internal needs a port", "write host.internal:PORT");
    if (range_) return reject("host.internal takes no '@'", "write host.internal:PORT");
    if (scope_ == Scope::kUdp)
      return reject("host.internal is reached over TCP only", "write host.internal:PORT");
    return {};
  }

  std::string_view text_;
  Scope scope_ = Scope::kAny;
  std::optional<Cidr> range_;
  std::optional<uint16_t> port_;
};

Result<HostPattern> HostPattern::parse(std::string_view text) {
  return PatternParser(text).parse();
}

bool HostPattern::is_host_internal() const {
  const auto* name = std::get_if<HostName>(&target_);
  return name != nullptr && *name == host_internal();
}

bool HostPattern::matches(const HostName& name) const {
  if (const auto* exact = std::get_if<HostName>(&target_)) return *exact == name;
  if (const auto* zone = std::get_if<Zone>(&target_)) return name.in_zone(zone->apex);
  return false;
}

bool HostPattern::is_below(const HostName& name) const {
  const auto* own = std::get_if<HostName>(&target_);
  if (const auto* zone = std::get_if<Zone>(&target_)) own = &zone->apex;
  return own != nullptr && *own != name && own->in_zone(name);
}

bool HostPattern::matches(const IpAddress& address) const {
  const auto* network = std::get_if<Cidr>(&target_);
  return network != nullptr && network->base().is_v4() == address.is_v4() &&
         network->contains(address);
}

bool HostPattern::is_exactly(const IpAddress& address) const {
  const auto* network = std::get_if<Cidr>(&target_);
  return network != nullptr && *network == Cidr::host(address);
}

bool HostPattern::is_wholly_never_by_name() const {
  const auto* network = std::get_if<Cidr>(&target_);
  return network != nullptr && wholly_never(*network);
}

const HostName* HostPattern::exact_name() const {
  return std::get_if<HostName>(&target_);
}

const HostName* HostPattern::zone_apex() const {
  const auto* zone = std::get_if<Zone>(&target_);
  return zone == nullptr ? nullptr : &zone->apex;
}

const Cidr* HostPattern::network() const {
  return std::get_if<Cidr>(&target_);
}

std::optional<IpAddress> HostPattern::exact_address() const {
  const auto* network = std::get_if<Cidr>(&target_);
  if (network == nullptr || *network != Cidr::host(network->base())) return std::nullopt;
  return network->base();
}

std::string HostPattern::text() const {
  std::string out;
  if (scope_ != Scope::kAny) out = fmt::format("{}/", scope_text(scope_));
  if (const auto* exact = std::get_if<HostName>(&target_)) out += exact->text();
  if (const auto* zone = std::get_if<Zone>(&target_)) out += "*." + zone->apex.text();
  if (const auto* network = std::get_if<Cidr>(&target_)) out += range_text(*network);
  if (range_) out += "@" + range_text(*range_);
  if (port_) out += fmt::format(":{}", *port_);
  return out;
}

}  // namespace sandbox::policy
