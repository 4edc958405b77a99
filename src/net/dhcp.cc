#include "net/dhcp.h"

#include <algorithm>

#include "net/ipv4.h"

namespace sandbox::net {

namespace {

// Fixed part of the message (RFC 2131 figure 1): 236 bytes, then the magic cookie and options.
constexpr size_t kFixedPart = 236;
constexpr uint32_t kCookie = 0x63825363;
constexpr uint8_t kFromClient = 1, kFromServer = 2;
constexpr uint8_t kEthernet = 1;  // as the type of hardware; its addresses have six bytes
constexpr uint16_t kBroadcastFlag = 0x8000;
constexpr size_t kServerNameAndFile = 64 + 128;
constexpr size_t kMinimalMessage =
    300;  // BOOTP relays and old clients expect that much (RFC 1542 2.1)

enum class Type : uint8_t {
  kDiscover = 1,
  kOffer = 2,
  kRequest = 3,
  kDecline = 4,
  kAck = 5,
  kNak = 6,
  kRelease = 7,
  kInform = 8,
};

enum Option : uint8_t {
  kPad = 0,
  kSubnetMask = 1,
  kRouter = 3,
  kDnsServer = 6,
  kInterfaceMtu = 26,
  kRequestedAddress = 50,
  kLeaseTime = 51,
  kMessageType = 53,
  kServerId = 54,
  kEnd = 255,
};

struct Request {
  Type type = Type::kDiscover;
  uint32_t transaction = 0;
  bool broadcast = false;
  Ipv4 client_ip;
  std::optional<Ipv4> requested_ip;
  std::optional<Ipv4> server_ip;
};

// Reads type, requested address and server from the options. False when they are malformed or the
// type is missing.
bool read_options(ByteReader& in, Request& out) {
  bool typed = false;
  while (in.remaining() > 0) {
    const uint8_t code = in.u8();
    if (code == kPad) continue;
    if (code == kEnd) break;
    ByteReader value(in.take(in.u8()));
    if (!in.ok()) return false;
    switch (code) {
      case kMessageType:
        out.type = static_cast<Type>(value.u8());
        typed = true;
        break;
      case kRequestedAddress:
        out.requested_ip = Ipv4{value.be32()};
        break;
      case kServerId:
        out.server_ip = Ipv4{value.be32()};
        break;
      default:
        continue;  // the client's wishes: it gets what there is
    }
    if (!value.done()) return false;
  }
  return typed;
}

std::optional<Request> parse_request(const DhcpLease& lease, ByteView message) {
  ByteReader in(message);
  const bool from_ethernet_client = in.u8() == kFromClient && in.u8() == kEthernet && in.u8() == 6;
  in.skip(1);  // hops
  Request out;
  out.transaction = in.be32();
  in.skip(2);  // seconds
  out.broadcast = (in.be16() & kBroadcastFlag) != 0;
  out.client_ip = {in.be32()};
  in.skip(12);  // your, server and relay address
  const ByteView hardware = in.take(16);
  in.skip(kServerNameAndFile);
  if (in.be32() != kCookie || !in.ok() || !from_ethernet_client) return std::nullopt;
  if (!std::ranges::equal(hardware.first(6), lease.client_mac.bytes)) return std::nullopt;
  if (!read_options(in, out)) return std::nullopt;
  return out;
}

// What to answer, from the table of RFC 2131 section 4.3; nullopt: nothing.
std::optional<Type> decide(const DhcpLease& lease, const Request& request) {
  switch (request.type) {
    case Type::kDiscover:
      return Type::kOffer;
    case Type::kInform:
      return Type::kAck;
    case Type::kRequest: {
      if (request.server_ip && *request.server_ip != lease.server_ip) return std::nullopt;
      const Ipv4 wanted = request.requested_ip.value_or(request.client_ip);
      return wanted == lease.client_ip ? Type::kAck : Type::kNak;
    }
    default:
      return std::nullopt;
  }
}

void option_ip(ByteWriter& out, Option code, Ipv4 ip) {
  out.u8(code);
  out.u8(4);
  out.be32(ip.value);
}

void write_network(ByteWriter& out, const DhcpLease& lease) {
  option_ip(out, kSubnetMask, {~uint32_t{0} << (32 - lease.prefix)});
  option_ip(out, kRouter, lease.server_ip);
  option_ip(out, kDnsServer, lease.server_ip);
  out.u8(kInterfaceMtu);
  out.u8(2);
  out.be16(lease.mtu);
}

Bytes build(const DhcpLease& lease, const Request& request, Type type) {
  const bool leases = type != Type::kNak && request.type != Type::kInform;
  ByteWriter out;
  out.u8(kFromServer);
  out.u8(kEthernet);
  out.u8(6);
  out.u8(0);
  out.be32(request.transaction);
  out.be16(0);
  out.be16(request.broadcast ? kBroadcastFlag : 0);
  out.be32(type == Type::kNak ? 0 : request.client_ip.value);
  out.be32(leases ? lease.client_ip.value : 0);
  out.be32(0);  // next server: nothing boots from here
  out.be32(0);
  out.bytes(lease.client_mac.bytes);
  out.zeros(kFixedPart - out.size());
  out.be32(kCookie);
  out.u8(kMessageType);
  out.u8(1);
  out.u8(static_cast<uint8_t>(type));
  option_ip(out, kServerId, lease.server_ip);
  if (leases) {
    out.u8(kLeaseTime);
    out.u8(4);
    out.be32(lease.seconds);
  }
  if (type != Type::kNak) write_network(out, lease);
  out.u8(kEnd);
  if (out.size() < kMinimalMessage) out.zeros(kMinimalMessage - out.size());
  return out.take();
}

}  // namespace

std::optional<DhcpReply> answer_dhcp(const DhcpLease& lease, ByteView message) {
  const auto request = parse_request(lease, message);
  if (!request) return std::nullopt;
  const auto type = decide(lease, *request);
  if (!type) return std::nullopt;
  DhcpReply reply;
  reply.message = build(lease, *request, *type);
  // RFC 2131 section 4.1: to a client that has no address yet and did not ask for broadcast, by its
  // hardware address.
  const bool everyone = *type == Type::kNak || request->broadcast;
  reply.destination_ip = everyone ? kBroadcast : lease.client_ip;
  reply.destination_mac = everyone ? MacAddress::broadcast() : lease.client_mac;
  return reply;
}

}  // namespace sandbox::net
