// The guest's queries, and the queries made of them.

#include "base/text.h"
#include "net/dns/format.h"

namespace sandbox::dns {

namespace {

// Types that are no data one can ask a resolver for: OPT, TKEY, TSIG, IXFR, AXFR.
bool is_meta(uint16_t type) {
  return type == 0 || type == 41 || (type >= 249 && type <= 252);
}

// Option codes do not matter to us, but their lengths must add up.
bool options_well_formed(ByteView options) {
  ByteReader reader(options);
  while (reader.ok() && reader.remaining() != 0) {
    reader.skip(2);
    reader.skip(reader.be16());
  }
  return reader.ok();
}

struct Opt {
  uint16_t udp_size;
  uint8_t version;
  bool dnssec_ok;
};

// The one record a query may carry besides its question. nullopt: something else, or malformed.
std::optional<Opt> read_opt(ByteReader& reader) {
  if (reader.u8() != 0 || reader.be16() != static_cast<uint16_t>(Type::kOpt)) return std::nullopt;
  Opt opt{};
  opt.udp_size = reader.be16();
  const uint32_t ttl = reader.be32();
  opt.version = static_cast<uint8_t>(ttl >> 16);
  opt.dnssec_ok = (ttl & kOptDo) != 0;
  const ByteView options = reader.take(reader.be16());
  if (!reader.ok() || !options_well_formed(options)) return std::nullopt;
  return opt;
}

// An address written as a reverse name, in full: 4 octets or 32 nibbles.
std::optional<IpAddress> reverse_address(const policy::HostName& name) {
  const std::vector<std::string_view> labels = split(name.text(), '.');
  if (labels.size() == 6 && labels[4] == "in-addr" && labels[5] == "arpa") {
    std::string text;
    for (size_t i = 4; i-- > 0;) text.append(labels[i]).append(i == 0 ? "" : ".");
    if (const auto v4 = Ipv4::parse(text)) return IpAddress(*v4);
    return std::nullopt;
  }
  if (labels.size() != 34 || labels[32] != "ip6" || labels[33] != "arpa") return std::nullopt;
  std::string hex;
  for (size_t i = 32; i-- > 0;) hex.append(labels[i]);
  const auto bytes = from_hex(hex);
  if (!bytes || bytes->size() != 16) return std::nullopt;
  std::array<uint8_t, 16> raw{};
  std::copy(bytes->begin(), bytes->end(), raw.begin());
  return IpAddress::from_bytes(raw);
}

}  // namespace

std::variant<Query, BadQuery> parse_query(ByteView message) {
  ByteReader reader(message);
  const Header header = read_header(reader);
  BadQuery bad;
  if (!reader.ok() || (header.flags & kQr) != 0) {
    bad.why = "no query";
    return bad;
  }
  bad.answerable = true;
  bad.id = header.id;
  bad.recursion_desired = (header.flags & kRd) != 0;
  const auto refuse = [&bad](Rcode rcode, const char* why) {
    bad.rcode = rcode;
    bad.why = why;
    return bad;
  };
  if ((header.flags & kOpcodeMask) != 0) return refuse(Rcode::kNotImp, "opcode");
  if (header.questions != 1) return refuse(Rcode::kFormErr, "not one question");
  if ((header.flags & kTc) != 0) return refuse(Rcode::kFormErr, "a truncated query");
  if (header.answers != 0 || header.authority != 0 || header.additional > 1)
    return refuse(Rcode::kFormErr, "records in a query");

  Query query;
  query.id = header.id;
  query.question.name = read_name(reader, message, Pointers::kForbidden);
  const uint16_t type = reader.be16();
  const uint16_t query_class = reader.be16();
  if (!reader.ok()) return refuse(Rcode::kFormErr, "malformed question");
  query.question.type = static_cast<Type>(type);
  query.flags.recursion_desired = bad.recursion_desired;
  query.flags.checking_disabled = (header.flags & kCd) != 0;
  query.flags.authentic_data = (header.flags & kAd) != 0;
  if (header.additional == 1) {
    const auto opt = read_opt(reader);
    if (!opt) return refuse(Rcode::kFormErr, "malformed OPT, or another record");
    if (opt->version != 0) return refuse(Rcode::kBadVers, "EDNS version");
    query.has_opt = true;
    query.udp_size = opt->udp_size < 512 ? uint16_t{512} : opt->udp_size;
    query.flags.dnssec_ok = opt->dnssec_ok;
  }
  if (!reader.done()) return refuse(Rcode::kFormErr, "bytes behind the message");
  if (query_class != kClassIn) return refuse(Rcode::kRefused, "class");
  if (is_meta(type)) return refuse(Rcode::kNotImp, "type");
  return query;
}

bool is_private_reverse(const policy::HostName& name) {
  const auto address = reverse_address(name);
  return address && is_special_use(*address);
}

Bytes build_query(uint16_t id, const Question& question, const Flags& flags) {
  const int bits = (flags.recursion_desired ? kRd : 0) | (flags.checking_disabled ? kCd : 0) |
                   (flags.authentic_data ? kAd : 0);
  MessageWriter writer(id, static_cast<uint16_t>(bits));
  writer.question(question);
  writer.opt(kOurUdpSize, 0, flags.dnssec_ok, {});
  return writer.take();
}

}  // namespace sandbox::dns
