#pragma once
// Writes ClientHello messages, well formed or with one thing wrong.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace sandbox::tls::testing {

using Extension = std::pair<uint16_t, Bytes>;

inline Bytes prefixed16(ByteView inner) {
  ByteWriter out;
  out.be16(static_cast<uint16_t>(inner.size()));
  out.bytes(inner);
  return out.take();
}

// server_name with entries of (type, name).
inline Extension server_names(const std::vector<std::pair<uint8_t, std::string>>& entries) {
  ByteWriter list;
  for (const auto& [type, name] : entries) {
    list.u8(type);
    list.bytes(prefixed16(as_bytes(name)));
  }
  return {0, prefixed16(list.view())};
}
inline Extension server_name(std::string name) {
  return server_names({{0, std::move(name)}});
}
inline Extension early_data() {
  return {42, {}};
}
inline Extension ech() {
  return {0xFE0D, {0, 0, 1, 0, 1, 7, 0, 0, 0, 0}};
}

// The handshake message, header included. No extensions block at all when nullopt.
inline Bytes hello_message(const std::optional<std::vector<Extension>>& extensions) {
  ByteWriter body;
  body.be16(0x0303);
  body.zeros(32);
  body.u8(0);
  body.be16(2);
  body.be16(0x1301);
  body.u8(1);
  body.u8(0);
  if (extensions) {
    ByteWriter block;
    for (const auto& [type, bytes] : *extensions) {
      block.be16(type);
      block.bytes(prefixed16(bytes));
    }
    body.bytes(prefixed16(block.view()));
  }
  ByteWriter out;
  out.u8(1);
  out.be24(static_cast<uint32_t>(body.size()));
  out.bytes(body.view());
  return out.take();
}

inline Bytes record(uint8_t type, ByteView payload, uint16_t version = 0x0301) {
  ByteWriter out;
  out.u8(type);
  out.be16(version);
  out.bytes(prefixed16(payload));
  return out.take();
}

// The message cut into records of `size` bytes.
inline Bytes records(ByteView message, size_t size) {
  Bytes out;
  for (size_t at = 0; at < message.size(); at += size) {
    const Bytes part = record(22, message.subspan(at, std::min(size, message.size() - at)));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

inline Bytes hello(const std::string& name) {
  return record(22, hello_message(std::vector{server_name(name)}));
}

inline Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace sandbox::tls::testing
