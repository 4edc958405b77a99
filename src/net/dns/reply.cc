// What the guest is answered.

#include <algorithm>

#include "net/dns/format.h"

namespace sandbox::dns {

namespace {

constexpr uint16_t kOptionEde = 15;
constexpr uint32_t kPrivateReverseTtl = 3600;
constexpr uint32_t kDeniedTtl = 1;

uint16_t reply_flags(const Query& query, Rcode rcode) {
  return static_cast<uint16_t>(kQr | kRa | (query.flags.recursion_desired ? kRd : 0) |
                               (query.flags.checking_disabled ? kCd : 0) |
                               (static_cast<int>(rcode) & kRcodeMask));
}

void add_opt(MessageWriter& writer, const Query& query, ByteView options) {
  if (query.has_opt) writer.opt(kOurUdpSize, 0, query.flags.dnssec_ok, options);
}

Bytes extended_error(Ede code, std::string_view reason) {
  // The text is for people and must not make the reply outgrow UDP.
  constexpr size_t kMaxText = 300;
  reason = reason.substr(0, kMaxText);
  ByteWriter out;
  out.be16(kOptionEde);
  out.be16(static_cast<uint16_t>(2 + reason.size()));
  out.be16(static_cast<uint16_t>(code));
  out.text(reason);
  return out.take();
}

// The zone of one label less, which owns the SOA; the root is its own.
Name parent_of(const Name& name) {
  if (name.is_root()) return name;
  Name parent;
  parent.wire.assign(name.wire.begin() + 1 + name.wire.front(), name.wire.end());
  return parent;
}

Record negative_soa(const Name& zone, uint32_t ttl) {
  ByteWriter rdata;
  rdata.bytes(zone.wire);
  // nobody.invalid. with the numbers of RFC 6303 section 3
  rdata.text(std::string_view("\6nobody\7invalid\0", 16));
  for (const uint32_t number : {1U, 3600U, 1200U, 604800U, ttl}) rdata.be32(number);
  return {zone, Type::kSoa, kClassIn, ttl, rdata.take()};
}

Bytes build_negative(const Query& query, Rcode rcode, uint32_t ttl, ByteView options) {
  MessageWriter writer(query.id, reply_flags(query, rcode));
  writer.question(query.question);
  writer.authority(negative_soa(parent_of(query.question.name), ttl));
  add_opt(writer, query, options);
  return writer.take();
}

bool covers(const Record& signature, Type type) {
  ByteReader reader(signature.rdata);
  return reader.be16() == static_cast<uint16_t>(type) && reader.ok();
}

bool is_service_binding(Type type) {
  return type == Type::kHttps || type == Type::kSvcb;
}

// Copies one answer record as the guest may see it; nullopt: not at all.
std::optional<Record> admitted(const Record& record, const Name& end,
                               const std::vector<Ipv4>& allowed) {
  if (record.rclass != kClassIn || record.type == Type::kAaaa) return std::nullopt;
  if (record.type == Type::kA) {
    ByteReader reader(record.rdata);
    const Ipv4 address{reader.be32()};
    const bool vouched = record.owner.same_as(end) &&
                         std::find(allowed.begin(), allowed.end(), address) != allowed.end();
    if (!vouched) return std::nullopt;
  }
  // A signature over what was rewritten would only make a validating client fail later.
  if (record.type == Type::kRrsig &&
      (covers(record, Type::kHttps) || covers(record, Type::kSvcb) || covers(record, Type::kAaaa)))
    return std::nullopt;
  if (!is_service_binding(record.type)) return record;
  auto rdata = without_forbidden_parameters(record.rdata);
  if (!rdata) return std::nullopt;
  Record out = record;
  out.rdata = std::move(*rdata);
  return out;
}

// What a negative answer needs to be cached, and with DNSSEC to be proven.
bool belongs_in_authority(const Record& record, bool dnssec_ok) {
  if (record.rclass != kClassIn) return false;
  switch (record.type) {
    case Type::kSoa:
      return true;
    case Type::kNsec:
    case Type::kNsec3:
    case Type::kRrsig:
      return dnssec_ok;
    default:
      return false;
  }
}

}  // namespace

Bytes build_malformed(const BadQuery& bad) {
  const auto rcode = static_cast<uint16_t>(bad.rcode);
  MessageWriter writer(bad.id, static_cast<uint16_t>(kQr | kRa | (bad.recursion_desired ? kRd : 0) |
                                                     (rcode & kRcodeMask)));
  if (rcode > kRcodeMask) writer.opt(kOurUdpSize, rcode, false, {});
  return writer.take();
}

Bytes build_denied(const Query& query, Ede code, std::string_view reason) {
  return build_negative(query, Rcode::kNxDomain, kDeniedTtl, extended_error(code, reason));
}

Bytes build_denied_parent(const Query& query, Ede code, std::string_view reason) {
  return build_negative(query, Rcode::kNoError, kDeniedTtl, extended_error(code, reason));
}

Bytes build_servfail(const Query& query, Ede code, std::string_view reason) {
  MessageWriter writer(query.id, reply_flags(query, Rcode::kServFail));
  writer.question(query.question);
  add_opt(writer, query, extended_error(code, reason));
  return writer.take();
}

Bytes build_no_data(const Query& query) {
  return build_addresses(query, {});
}

Bytes build_private_reverse(const Query& query) {
  return build_negative(query, Rcode::kNxDomain, kPrivateReverseTtl, {});
}

Bytes build_addresses(const Query& query, const std::vector<AddressRecord>& addresses) {
  MessageWriter writer(query.id, reply_flags(query, Rcode::kNoError));
  writer.question(query.question);
  for (const AddressRecord& each : addresses) {
    ByteWriter rdata;
    rdata.be32(each.address.value);
    writer.answer({query.question.name, Type::kA, kClassIn, each.ttl, rdata.take()});
  }
  add_opt(writer, query, {});
  return writer.take();
}

Bytes build_reply(const Query& query, const Answer& answer, const std::vector<Ipv4>& allowed) {
  const bool usable = answer.rcode == Rcode::kNoError || answer.rcode == Rcode::kNxDomain;
  if (!usable) return build_servfail(query, Ede::kNetworkError, "the resolver failed");
  const Name& end = answer.chain.empty() ? query.question.name : answer.chain.back();
  std::vector<Record> kept;
  bool unchanged = true;
  for (const Record& record : answer.answers) {
    auto copy = admitted(record, end, allowed);
    unchanged = unchanged && copy && copy->rdata == record.rdata;
    if (copy) kept.push_back(std::move(*copy));
  }
  const bool wants_ad = query.flags.authentic_data || query.flags.dnssec_ok;
  uint16_t flags = reply_flags(query, answer.rcode);
  if (answer.authentic_data && wants_ad && unchanged) flags |= kAd;
  MessageWriter writer(query.id, flags);
  writer.question(query.question);
  for (const Record& record : kept) writer.answer(record);
  for (const Record& record : answer.authority)
    if (belongs_in_authority(record, query.flags.dnssec_ok)) writer.authority(record);
  add_opt(writer, query, {});
  return writer.take();
}

size_t udp_limit(const Query& query) {
  return std::clamp<size_t>(query.udp_size, 512, kOurUdpSize);
}

Bytes fit(const Query& query, Bytes reply, size_t limit) {
  if (reply.size() <= limit) return reply;
  // TC over TCP would send the client round in a circle.
  if (limit >= 0xFFFF) return build_servfail(query, Ede::kNetworkError, "the answer is too large");
  ByteReader reader(reply);
  const Header header = read_header(reader);
  MessageWriter writer(query.id, static_cast<uint16_t>(header.flags | kTc));
  writer.question(query.question);
  add_opt(writer, query, {});
  return writer.take();
}

}  // namespace sandbox::dns
