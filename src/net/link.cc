#include "net/link.h"

#include <fmt/format.h>

#include <algorithm>

namespace sandbox::net {

namespace {

std::string_view describe(Ipv4Error error) {
  switch (error) {
    case Ipv4Error::kTruncated:
      return "shorter than its header";
    case Ipv4Error::kVersion:
      return "not version 4";
    case Ipv4Error::kLength:
      return "length field";
    case Ipv4Error::kChecksum:
      return "header checksum";
    case Ipv4Error::kTtl:
      return "time to live 0";
    case Ipv4Error::kOptions:
      return "options";
    case Ipv4Error::kNone:
      break;
  }
  return "";
}

}  // namespace

std::string_view drop_name(Drop drop) {
  constexpr std::array<std::string_view, static_cast<size_t>(Drop::kCount)> kNames = {
      "frame-truncated",
      "source-mac",
      "destination-mac",
      "vlan",
      "ipv6",
      "frame-type",
      "arp-malformed",
      "arp-claim",
      "ip-malformed",
      "ip-options",
      "ip-source",
      "ip-destination",
      "tcp-fragment",
      "fragment-overlap",
      "fragment-invalid",
      "fragment-limit",
      "protocol",
      "udp-malformed",
      "icmp-unsupported",
      "dhcp-ignored"};
  static_assert(!kNames.back().empty());
  return kNames[static_cast<size_t>(drop)];
}

Link::Link(const LinkConfig& config, Wire& wire, Upper& upper)
    : config_(config), wire_(wire), upper_(upper) {}

void Link::drop(Drop kind, std::string_view detail) {
  if (drops_[static_cast<size_t>(kind)]++ == 0) upper_.on_first_drop(kind, detail);
}

void Link::receive(ByteView bytes, Instant now) {
  const auto frame = parse_ethernet(bytes);
  if (!frame) return drop(Drop::kFrameTruncated, "");
  if (frame->source != config_.guest_mac)
    return drop(Drop::kSourceMac, fmt::format("source {}", frame->source.text()));
  if (frame->destination != config_.gateway_mac && !frame->destination.is_group())
    return drop(Drop::kDestinationMac, fmt::format("to {}", frame->destination.text()));
  switch (frame->type) {
    case kTypeIpv4:
      return receive_ipv4(frame->payload, now);
    case kTypeArp:
      return receive_arp(frame->payload);
    case kTypeVlan:
    case kTypeServiceVlan:
      return drop(Drop::kVlan, "");
    case kTypeIpv6:
      return drop(Drop::kIpv6, "");
    default:
      return drop(Drop::kFrameType, fmt::format("type {:#06x}", frame->type));
  }
}

// The guest may ask for the gateway and announce itself. Anything that speaks for another address
// would be a second machine on this cable, and one that speaks for the gateway's an attempt to take
// its place.
void Link::receive_arp(ByteView bytes) {
  const auto packet = parse_arp(bytes);
  if (!packet) return drop(Drop::kArpMalformed, "");
  const bool own = packet->sender_ip == config_.guest_ip || packet->sender_ip.value == 0;
  if (!own || packet->sender_mac != config_.guest_mac)
    return drop(Drop::kArpClaim,
                fmt::format("{} claims {}", packet->sender_mac.text(), packet->sender_ip.text()));
  if (packet->operation != ArpPacket::kRequest || packet->target_ip != config_.gateway_ip) return;
  const auto room = begin_frame(config_.guest_mac, kTypeArp, kArpPacket);
  if (room.empty()) return;
  write_arp(room.data(), {ArpPacket::kReply, config_.gateway_mac, config_.gateway_ip,
                          config_.guest_mac, packet->sender_ip});
  wire_.commit_frame();
}

void Link::receive_ipv4(ByteView bytes, Instant now) {
  Ipv4Packet packet;
  const Ipv4Error error = parse_ipv4(bytes, packet);
  if (error == Ipv4Error::kOptions) return drop(Drop::kIpOptions, "");
  if (error != Ipv4Error::kNone) return drop(Drop::kIpMalformed, describe(error));
  if (packet.source != config_.guest_ip) {
    if (packet.source.value == 0 && receive_dhcp(packet)) return;
    return drop(Drop::kIpSource, fmt::format("source {}", packet.source.text()));
  }
  if (!packet.is_fragment()) return receive_whole(packet);
  if (packet.protocol == kProtocolTcp) return drop(Drop::kTcpFragment, "");
  if (packet.protocol != kProtocolUdp && packet.protocol != kProtocolIcmp)
    return drop(Drop::kProtocol, fmt::format("protocol {}", packet.protocol));
  const auto result = reassembly_.add(packet, now);
  switch (result.outcome) {
    case Reassembly::Outcome::kComplete:
      return receive_whole(result.packet);
    case Reassembly::Outcome::kOverlap:
      return drop(Drop::kFragmentOverlap, "");
    case Reassembly::Outcome::kInvalid:
      return drop(Drop::kFragmentInvalid, "");
    case Reassembly::Outcome::kFull:
      return drop(Drop::kFragmentLimit, "");
    case Reassembly::Outcome::kWaiting:
      return;
  }
}

void Link::receive_whole(const Ipv4Packet& packet) {
  const bool renewal =
      packet.protocol == kProtocolUdp &&
      (packet.destination == kBroadcast || packet.destination == config_.gateway_ip);
  if (renewal && receive_dhcp(packet)) return;
  if (!is_unicast(packet.destination))
    return drop(Drop::kIpDestination, fmt::format("to {}", packet.destination.text()));
  switch (packet.protocol) {
    case kProtocolTcp:
      return upper_.on_tcp(packet);
    case kProtocolUdp:
      return receive_udp(packet);
    case kProtocolIcmp:
      return receive_icmp(packet);
    default:
      drop(Drop::kProtocol, fmt::format("protocol {}", packet.protocol));
      send_unreachable(Unreachable::kProtocol, packet.whole);
  }
}

void Link::receive_udp(const Ipv4Packet& packet) {
  UdpDatagram datagram;
  if (parse_udp(packet, datagram) != UdpError::kNone) return drop(Drop::kUdpMalformed, "");
  upper_.on_udp(packet, datagram);
}

void Link::receive_icmp(const Ipv4Packet& packet) {
  const auto echo = parse_icmp_echo(packet.payload);
  if (!echo || echo->type != IcmpEcho::kRequest) {
    const int type = packet.payload.empty() ? -1 : packet.payload[0];
    return drop(Drop::kIcmpUnsupported, fmt::format("type {}", type));
  }
  if (packet.destination != config_.gateway_ip) return upper_.on_echo_request(packet, *echo);
  send_echo_reply(config_.gateway_ip, echo->identifier, echo->sequence, echo->payload);
}

// True when the packet was for the DHCP server, answered or not.
bool Link::receive_dhcp(const Ipv4Packet& packet) {
  UdpDatagram datagram;
  if (packet.protocol != kProtocolUdp || packet.is_fragment() ||
      parse_udp(packet, datagram) != UdpError::kNone ||
      datagram.destination_port != kDhcpServerPort)
    return false;
  const DhcpLease lease{.client_mac = config_.guest_mac,
                        .client_ip = config_.guest_ip,
                        .server_ip = config_.gateway_ip,
                        .prefix = config_.prefix,
                        .mtu = config_.mtu};
  const auto reply = answer_dhcp(lease, datagram.payload);
  if (!reply) {
    drop(Drop::kDhcpIgnored, "");
    return true;
  }
  Bytes udp(kUdpHeader + reply->message.size());
  std::ranges::copy(reply->message, udp.begin() + kUdpHeader);
  write_udp(udp.data(), config_.gateway_ip, kDhcpServerPort, reply->destination_ip, kDhcpClientPort,
            reply->message.size());
  (void)send_ipv4(reply->destination_mac, config_.gateway_ip, reply->destination_ip, kProtocolUdp,
                  udp);  // a client that hears nothing asks again
  return true;
}

std::span<uint8_t> Link::begin_frame(const MacAddress& to, uint16_t type, size_t payload_size) {
  const auto frame = wire_.begin_frame(kEthernetHeader + payload_size);
  if (frame.empty()) return {};
  write_ethernet(frame.data(), to, config_.gateway_mac, type);
  return frame.subspan(kEthernetHeader);
}

std::span<uint8_t> Link::begin_packet(size_t size) {
  return begin_frame(config_.guest_mac, kTypeIpv4, size);
}

bool Link::send_ipv4(const MacAddress& to, Ipv4 source, Ipv4 destination, uint8_t protocol,
                     ByteView payload) {
  const size_t fits = config_.mtu - kIpv4Header;
  if (payload.size() <= fits) {
    const auto room = begin_frame(to, kTypeIpv4, kIpv4Header + payload.size());
    if (room.empty()) return false;
    write_ipv4(room.data(), source, destination, protocol, payload.size());
    std::ranges::copy(payload, room.data() + kIpv4Header);
    wire_.commit_frame();
    return true;
  }
  const size_t piece = fits / 8 * 8;
  const uint16_t id = next_id_++;
  for (size_t at = 0; at < payload.size(); at += piece) {
    const ByteView part = payload.subspan(at, std::min(piece, payload.size() - at));
    const auto room = begin_frame(to, kTypeIpv4, kIpv4Header + part.size());
    if (room.empty()) return false;
    const FragmentPlace place{id, at, at + part.size() < payload.size()};
    write_ipv4_fragment(room.data(), source, destination, protocol, part.size(), place);
    std::ranges::copy(part, room.data() + kIpv4Header);
    wire_.commit_frame();
  }
  return true;
}

bool Link::send_udp(Ipv4 source, uint16_t source_port, uint16_t guest_port, ByteView payload) {
  Bytes udp(kUdpHeader + payload.size());
  std::ranges::copy(payload, udp.begin() + kUdpHeader);
  write_udp(udp.data(), source, source_port, config_.guest_ip, guest_port, payload.size());
  return send_ipv4(config_.guest_mac, source, config_.guest_ip, kProtocolUdp, udp);
}

bool Link::send_echo_reply(Ipv4 source, uint16_t identifier, uint16_t sequence, ByteView payload) {
  Bytes icmp(kIcmpHeader + payload.size());
  std::ranges::copy(payload, icmp.begin() + kIcmpHeader);
  write_icmp_echo(icmp.data(), IcmpEcho::kReply, identifier, sequence, payload.size());
  return send_ipv4(config_.guest_mac, source, config_.guest_ip, kProtocolIcmp, icmp);
}

// From the gateway, as a router would: the guest matches the error to its socket by the quoted
// packet.
bool Link::send_unreachable(Unreachable code, ByteView offending) {
  std::array<uint8_t, kIcmpHeader + kIcmpQuote> icmp;
  const size_t size = write_icmp_unreachable(icmp.data(), code, offending);
  return send_ipv4(config_.guest_mac, config_.gateway_ip, config_.guest_ip, kProtocolIcmp,
                   ByteView(icmp).first(size));
}

}  // namespace sandbox::net
