#include "net/tls/hello_body.h"

#include <set>

#include "base/ip.h"

namespace sandbox::tls {

namespace {

constexpr uint16_t kServerName = 0;
constexpr uint16_t kAlpn = 16;
constexpr uint16_t kEarlyData = 42;
constexpr uint16_t kEncryptedClientHello = 0xFE0D;
constexpr uint16_t kEncryptedServerName = 0xFFCE;  // the drafts before ECH

// server_name (RFC 6066 section 3): a list, of which exactly one host name is accepted. Several
// names, or name types that do not exist, are read differently by different libraries.
Result<policy::HostName> parse_server_name(ByteView extension) {
  ByteReader outer(extension);
  const ByteView list = outer.take(outer.be16());
  if (!outer.done() || list.empty()) return fail(Code::kProtocol, "malformed server_name");
  ByteReader reader(list);
  const uint8_t type = reader.u8();
  const ByteView name = reader.take(reader.be16());
  if (!reader.ok()) return fail(Code::kProtocol, "malformed server_name");
  if (reader.remaining() != 0) return fail(Code::kProtocol, "two names in server_name");
  if (type != 0) return fail(Code::kProtocol, "server_name of type {}", type);
  if (name.empty()) return fail(Code::kProtocol, "an empty server_name");
  const std::string_view text = as_text(name);
  if (text.back() == '.') return fail(Code::kProtocol, "server_name ends in a dot");
  if (IpAddress::parse(text) || policy::is_numeric_spelling(text) || text.front() == '[')
    return fail(Code::kProtocol, "server_name is an address");
  auto host = policy::HostName::parse(text);
  if (!host) return fail(Code::kProtocol, "server_name: {}", host.error().message);
  return std::move(*host);
}

Result<std::vector<std::string>> parse_alpn(ByteView extension) {
  ByteReader outer(extension);
  ByteReader reader(outer.take(outer.be16()));
  std::vector<std::string> protocols;
  while (outer.done() && reader.ok() && reader.remaining() != 0)
    protocols.emplace_back(as_text(reader.take(reader.u8())));
  if (!outer.done() || !reader.ok()) return fail(Code::kProtocol, "malformed ALPN");
  return protocols;
}

Status take_extension(Hello& hello, uint16_t type, ByteView body) {
  switch (type) {
    case kServerName: {
      ASSIGN(hello.server_name, parse_server_name(body));
      return {};
    }
    case kAlpn: {
      ASSIGN(hello.alpn, parse_alpn(body));
      return {};
    }
    case kEarlyData:
      hello.early_data = true;
      return {};
    case kEncryptedClientHello:
    case kEncryptedServerName:
      hello.ech = true;
      return {};
    default:
      return {};
  }
}

}  // namespace

Result<Hello> parse_hello_body(ByteView body) {
  ByteReader reader(body);
  if (reader.u8() != 3) return fail(Code::kProtocol, "hello of a version before SSL 3");
  reader.skip(1 + 32);  // minor version, random
  const ByteView session = reader.take(reader.u8());
  const ByteView suites = reader.take(reader.be16());
  const ByteView compression = reader.take(reader.u8());
  if (!reader.ok() || session.size() > 32 || suites.empty() || suites.size() % 2 != 0 ||
      compression.empty())
    return fail(Code::kProtocol, "malformed hello");
  Hello hello;
  if (reader.remaining() == 0) return hello;  // before extensions existed
  ByteReader extensions(reader.take(reader.be16()));
  if (!reader.done()) return fail(Code::kProtocol, "malformed extensions");
  std::set<uint16_t> seen;
  while (extensions.remaining() != 0) {
    const uint16_t type = extensions.be16();
    const ByteView extension = extensions.take(extensions.be16());
    if (!extensions.ok()) return fail(Code::kProtocol, "malformed extensions");
    if (!seen.insert(type).second) return fail(Code::kProtocol, "extension {} twice", type);
    TRY(take_extension(hello, type, extension));
  }
  return hello;
}

}  // namespace sandbox::tls
