#include "base/text.h"
#include "net/http/request_head.h"

namespace sandbox::http {

namespace {

std::optional<IpAddress> parse_bracketed(std::string_view text) {
  if (!text.ends_with(']') || text.find(':') == std::string_view::npos) return std::nullopt;
  return IpAddress::parse(text.substr(1, text.size() - 2));
}

}  // namespace

std::optional<Authority> Authority::parse(std::string_view text) {
  // The colon of the port is the last one, and outside of brackets.
  const size_t colon = text.rfind(':');
  const size_t bracket = text.rfind(']');
  std::string_view host = text;
  std::optional<uint16_t> port;
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    host = text.substr(0, colon);
    const std::string_view digits = text.substr(colon + 1);
    if (!digits.empty()) {  // "host:" is legal and means the default (RFC 3986 section 3.2.3)
      const auto number = parse_decimal(digits);
      if (!number || *number == 0 || *number > 0xFFFF) return std::nullopt;
      port = static_cast<uint16_t>(*number);
    }
  }
  if (host.starts_with('[')) {
    const auto address = parse_bracketed(host);
    return address ? std::optional(Authority(*address, port)) : std::nullopt;
  }
  if (const auto v4 = Ipv4::parse(host)) return Authority(IpAddress(*v4), port);
  auto name = policy::HostName::parse(host);
  if (!name) return std::nullopt;
  return Authority(std::move(*name), port);
}

std::string Authority::text() const {
  std::string out;
  if (const policy::HostName* host_name = name()) {
    out = host_name->text();
  } else {
    out = address()->is_v4() ? address()->text() : "[" + address()->text() + "]";
  }
  if (port_) out += ":" + std::to_string(*port_);
  return out;
}

}  // namespace sandbox::http
