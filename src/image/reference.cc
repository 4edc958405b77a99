#include "image/reference.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/ip.h"
#include "base/text.h"
#include "image/digest.h"

namespace sandbox {

namespace {

constexpr size_t kMaxReference = 1024;
constexpr size_t kMaxRepository = 255;  // distribution/reference: NameTotalLengthMax
constexpr size_t kMaxTag = 128;

bool lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}
bool letter_or_digit(char c) {
  return lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

tl::unexpected<Error> bad(std::string_view text, std::string_view why) {
  return fail(
      Error{Code::kInvalid,
            fmt::format("image reference '{}': {}", escape_terminal(text.substr(0, 200)), why),
            "write it like debian:bookworm-slim or ghcr.io/org/name@sha256:…"});
}

// path-component := [a-z0-9]+ (("." | "_" | "__" | "-"+) [a-z0-9]+)*
bool is_path_component(std::string_view text) {
  size_t at = 0;
  for (;;) {
    const size_t start = at;
    while (at < text.size() && lower_or_digit(text[at])) ++at;
    if (at == start) return false;
    if (at == text.size()) return true;
    const size_t separator = at;
    while (at < text.size() && !lower_or_digit(text[at])) ++at;
    const std::string_view between = text.substr(separator, at - separator);
    const bool dashes = between.find_first_not_of('-') == std::string_view::npos;
    if (!dashes && between != "." && between != "_" && between != "__") return false;
  }
}

bool is_tag(std::string_view text) {
  if (text.empty() || text.size() > kMaxTag) return false;
  if (!letter_or_digit(text[0]) && text[0] != '_') return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return letter_or_digit(c) || c == '_' || c == '.' || c == '-'; });
}

struct Registry {
  std::string host;  // without brackets
  bool has_port = false;
};

// host[:port], where the host is a DNS name, an IPv4 address or an IPv6 address in brackets.
std::optional<Registry> parse_registry(std::string_view text) {
  Registry out;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    out.host = text.substr(1, close - 1);
    if (!IpAddress::parse(out.host)) return std::nullopt;
    port = text.substr(close + 1);
  } else {
    const size_t colon = text.find(':');
    out.host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon);
    for (const std::string_view label : split(out.host, '.')) {
      if (label.empty() || label.front() == '-' || label.back() == '-') return std::nullopt;
      if (!std::all_of(label.begin(), label.end(),
                       [](char c) { return letter_or_digit(c) || c == '-'; }))
        return std::nullopt;
    }
  }
  if (port.empty()) return out;
  const auto number = port[0] == ':' ? parse_decimal(port.substr(1)) : std::nullopt;
  if (!number || *number == 0 || *number > 65535) return std::nullopt;
  out.has_port = true;
  return out;
}

bool is_loopback(const std::string& host) {
  if (to_lower(host) == "localhost") return true;
  const auto address = IpAddress::parse(host);
  if (!address) return false;
  if (address->is_v4()) return address->v4().value >> 24 == 127;
  return *address == *IpAddress::parse("::1");
}

// "DIR[:TAG]" behind "oci:" and "oci-archive:", the path made absolute so that equal images have
// equal references.
Result<std::string> local_reference(std::string_view text, std::string_view scheme) {
  std::string_view path = text.substr(scheme.size());
  std::string_view tag;
  if (const size_t colon = path.rfind(':'); colon != std::string_view::npos) {
    tag = path.substr(colon);
    path = path.substr(0, colon);
  }
  if (path.empty() || path.find(':') != std::string_view::npos)
    return bad(text, "the path is empty or has a colon");
  std::error_code error;
  const auto absolute = std::filesystem::absolute(std::string(path), error).lexically_normal();
  if (!std::filesystem::exists(absolute, error))
    return fail(Code::kNotFound, "image reference '{}': no such file or folder", text);
  return fmt::format("{}{}{}", scheme, absolute.string(), tag);
}

}  // namespace

Result<ImageReference> ImageReference::parse(std::string_view text) {
  if (text.empty()) return bad(text, "it is empty");
  if (text.size() > kMaxReference) return bad(text, "it is too long");
  ImageReference out;
  for (const std::string_view scheme : {"oci:", "oci-archive:"}) {
    if (!text.starts_with(scheme)) continue;
    ASSIGN(out.text_, local_reference(text, scheme));
    out.transport_ = out.text_;
    return out;
  }
  std::string_view rest = text;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos)
    return bad(text, "it has a scheme; leave out everything before ://");
  std::string digest;
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    auto parsed = Digest::parse(rest.substr(at + 1));
    if (!parsed) return bad(text, parsed.error().message);
    digest = parsed->text();
    rest = rest.substr(0, at);
  }
  std::string_view tag;
  if (const size_t colon = rest.rfind(':');
      colon != std::string_view::npos && rest.find('/', colon) == std::string_view::npos) {
    tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_tag(tag)) return bad(text, fmt::format("'{}' is not a tag", escape_terminal(tag)));
  }
  std::string registry = "docker.io";
  const size_t slash = rest.find('/');
  const std::string_view first = rest.substr(0, slash);
  if (slash != std::string_view::npos &&
      (first.find_first_of(".:[") != std::string_view::npos || first == "localhost")) {
    const auto parsed = parse_registry(first);
    if (!parsed) return bad(text, fmt::format("'{}' is not a registry", escape_terminal(first)));
    registry = first == "index.docker.io" ? "docker.io" : std::string(first);
    out.loopback_ = is_loopback(parsed->host);
    rest = rest.substr(slash + 1);
  }
  for (const std::string_view part : split(rest, '/')) {
    if (is_path_component(part)) continue;
    const bool upper = is_path_component(to_lower(part));
    return bad(text, fmt::format("'{}' is not a repository name{}", escape_terminal(part),
                                 upper ? "; it must be lower case" : ""));
  }
  std::string repository(rest);
  if (registry == "docker.io" && rest.find('/') == std::string_view::npos)
    repository = "library/" + repository;
  if (repository.size() > kMaxRepository) return bad(text, "the repository name is too long");
  // With both, the digest decides and the tag says nothing; skopeo refuses the pair.
  const std::string suffix = !digest.empty() ? "@" + digest
                             : tag.empty()   ? std::string(":latest")
                                             : fmt::format(":{}", tag);
  out.text_ = fmt::format("{}/{}{}", registry, repository, suffix);
  out.transport_ = "docker://" + out.text_;
  return out;
}

}  // namespace sandbox
