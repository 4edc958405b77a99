#pragma once
// ICMP (RFC 792): echo, and the errors with which a refusal is made visible.

#include <optional>

#include "base/bytes.h"
#include "base/ip.h"
#include "net/ipv4.h"

namespace sandbox::net {

constexpr size_t kIcmpHeader = 8;

struct IcmpEcho {
  static constexpr uint8_t kReply = 0;
  static constexpr uint8_t kRequest = 8;
  uint8_t type = 0;
  uint16_t identifier = 0;
  uint16_t sequence = 0;
  ByteView payload;
};

// Echo request or reply with a right checksum; nullopt for any other message.
std::optional<IcmpEcho> parse_icmp_echo(ByteView bytes);
// Header and checksum over the payload that the caller has placed at out + kIcmpHeader.
void write_icmp_echo(uint8_t* out, uint8_t type, uint16_t identifier, uint16_t sequence,
                     size_t payload_size);

// Codes of type 3, destination unreachable (RFC 1122 3.2.2.1, RFC 1812 5.2.7.1).
enum class Unreachable : uint8_t { kHost = 1, kProtocol = 2, kPort = 3, kProhibited = 13 };

// RFC 1812 4.3.2.3: as much of the offending packet as fits in 576 bytes in all.
constexpr size_t kIcmpQuote = 576 - kIpv4Header - kIcmpHeader;
// Writes the ICMP message (header and quote) and returns its size; `out` has room for kIcmpHeader +
// kIcmpQuote.
size_t write_icmp_unreachable(uint8_t* out, Unreachable code, ByteView offending_packet);

}  // namespace sandbox::net
