// SvcParams of HTTPS and SVCB records (RFC 9460).

#include <array>

#include "base/text.h"
#include "net/dns/format.h"

namespace sandbox::dns {

namespace {

constexpr uint16_t kMandatory = 0;
constexpr uint16_t kAlpn = 1;
constexpr uint16_t kNoDefaultAlpn = 2;

bool is_forbidden(uint16_t key) {
  constexpr uint16_t kIpv4Hint = 4, kEch = 5, kIpv6Hint = 6;
  return key == kIpv4Hint || key == kEch || key == kIpv6Hint;
}

// h3 and its drafts (h3-29) run over QUIC.
bool is_quic(std::string_view protocol) {
  return protocol == "h3" || protocol.starts_with("h3-");
}

// nullopt: malformed.
std::optional<Bytes> without_quic(ByteView alpn) {
  ByteReader reader(alpn);
  ByteWriter out;
  while (reader.ok() && reader.remaining() != 0) {
    const ByteView protocol = reader.take(reader.u8());
    if (!reader.ok() || protocol.empty()) return std::nullopt;
    if (is_quic(as_text(protocol))) continue;
    out.u8(static_cast<uint8_t>(protocol.size()));
    out.bytes(protocol);
  }
  return out.take();
}

struct Parameter {
  uint16_t key;
  Bytes value;
};

// Keys must ascend (section 2.2); otherwise clients reject the record, and so do we.
std::optional<std::vector<Parameter>> read_parameters(ByteReader& reader) {
  std::vector<Parameter> out;
  while (reader.ok() && reader.remaining() != 0) {
    const uint16_t key = reader.be16();
    const ByteView value = reader.take(reader.be16());
    if (!reader.ok() || (!out.empty() && key <= out.back().key)) return std::nullopt;
    out.push_back({key, Bytes(value.begin(), value.end())});
  }
  return out;
}

// The list of keys a client must understand, without those that were taken away.
std::optional<Bytes> remaining_mandatory(ByteView value, const std::vector<Parameter>& kept) {
  ByteReader reader(value);
  ByteWriter out;
  while (reader.ok() && reader.remaining() != 0) {
    const uint16_t key = reader.be16();
    for (const Parameter& parameter : kept)
      if (reader.ok() && parameter.key == key && key != kMandatory) out.be16(key);
  }
  if (!reader.ok()) return std::nullopt;
  return out.take();
}

}  // namespace

std::optional<Bytes> without_forbidden_parameters(ByteView rdata) {
  ByteReader reader(rdata);
  const uint16_t priority = reader.be16();
  const Name target = read_name(reader, rdata, Pointers::kForbidden);
  if (!reader.ok()) return std::nullopt;
  const auto parameters = read_parameters(reader);
  if (!parameters) return std::nullopt;

  std::vector<Parameter> kept;
  bool no_protocol_left = false;
  for (const Parameter& parameter : *parameters) {
    if (is_forbidden(parameter.key)) continue;
    // Without alpn the default protocol holds; where the default is excluded nothing usable is
    // left.
    if (parameter.key == kNoDefaultAlpn && no_protocol_left) return std::nullopt;
    if (parameter.key != kAlpn) {
      kept.push_back(parameter);
      continue;
    }
    auto alpn = without_quic(parameter.value);
    if (!alpn) return std::nullopt;
    no_protocol_left = alpn->empty();
    if (!no_protocol_left) kept.push_back({kAlpn, std::move(*alpn)});
  }

  ByteWriter out;
  out.be16(priority);
  out.bytes(target.wire);
  for (const Parameter& parameter : kept) {
    Bytes value = parameter.value;
    if (parameter.key == kMandatory) {
      auto left = remaining_mandatory(parameter.value, kept);
      if (!left) return std::nullopt;
      if (left->empty()) continue;
      value = std::move(*left);
    }
    out.be16(parameter.key);
    out.be16(static_cast<uint16_t>(value.size()));
    out.bytes(value);
  }
  return out.take();
}

}  // namespace sandbox::dns
