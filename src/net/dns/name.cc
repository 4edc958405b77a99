#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/text.h"
#include "net/dns/format.h"

namespace sandbox::dns {

namespace {

constexpr size_t kMaxName = 255;

std::string folded(ByteView wire) {
  return to_lower(as_text(wire));
}

std::vector<ByteView> labels_of(ByteView wire) {
  std::vector<ByteView> labels;
  for (size_t at = 0; at < wire.size() && wire[at] != 0; at += 1U + wire[at])
    labels.push_back(wire.subspan(at + 1, wire[at]));
  return labels;
}

Name make_name(Bytes wire) {
  Name name;
  const std::vector<ByteView> labels = labels_of(wire);
  if (auto host = policy::HostName::from_labels(labels)) name.host = std::move(*host);
  name.wire = std::move(wire);
  return name;
}

}  // namespace

std::string type_text(Type type) {
  switch (type) {
    case Type::kA:
      return "A";
    case Type::kNs:
      return "NS";
    case Type::kCname:
      return "CNAME";
    case Type::kSoa:
      return "SOA";
    case Type::kPtr:
      return "PTR";
    case Type::kMx:
      return "MX";
    case Type::kTxt:
      return "TXT";
    case Type::kAaaa:
      return "AAAA";
    case Type::kSrv:
      return "SRV";
    case Type::kDname:
      return "DNAME";
    case Type::kOpt:
      return "OPT";
    case Type::kDs:
      return "DS";
    case Type::kRrsig:
      return "RRSIG";
    case Type::kNsec:
      return "NSEC";
    case Type::kNsec3:
      return "NSEC3";
    case Type::kSvcb:
      return "SVCB";
    case Type::kHttps:
      return "HTTPS";
    case Type::kIxfr:
      return "IXFR";
    case Type::kAxfr:
      return "AXFR";
    case Type::kAny:
      return "ANY";
  }
  return fmt::format("TYPE{}", static_cast<uint16_t>(type));
}

std::string Name::text() const {
  std::string out;
  for (const ByteView label : labels_of(wire)) {
    if (!out.empty()) out += '.';
    for (const uint8_t byte : label) {
      if (byte > 0x20 && byte < 0x7F && byte != '.' && byte != '\\') {
        out += static_cast<char>(byte);
      } else {
        out += fmt::format("\\{:03d}", byte);
      }
    }
  }
  return out.empty() ? "." : out;
}

bool Name::same_as(const Name& other) const {
  return folded(wire) == folded(other.wire);
}

Name Name::of(const policy::HostName& host) {
  Name name;
  for (const std::string_view label : split(host.text(), '.')) {
    name.wire.push_back(static_cast<uint8_t>(label.size()));
    name.wire.insert(name.wire.end(), label.begin(), label.end());
  }
  name.wire.push_back(0);
  name.host = host;
  return name;
}

Header read_header(ByteReader& reader) {
  Header header{};
  header.id = reader.be16();
  header.flags = reader.be16();
  header.questions = reader.be16();
  header.answers = reader.be16();
  header.authority = reader.be16();
  header.additional = reader.be16();
  return header;
}

Name read_name(ByteReader& reader, ByteView message, Pointers pointers) {
  Bytes wire;
  // The reader itself follows the name until the first pointer; from there `at` walks through the
  // message.
  size_t at = reader.position();
  size_t bound = at;  // a pointer must lead before this
  bool jumped = false;
  const auto broken = [&reader] {
    reader.fail();
    return Name{};
  };
  while (true) {
    if (at >= message.size()) return broken();
    const uint8_t length = message[at];
    if (length >= 0xC0) {
      if (pointers == Pointers::kForbidden || at + 1 >= message.size()) return broken();
      const size_t target = static_cast<size_t>(length & 0x3F) << 8 | message[at + 1];
      if (target >= bound) return broken();
      if (!jumped) reader.skip(at + 2 - reader.position());
      jumped = true;
      at = bound = target;
      continue;
    }
    if (length > 63 || at + 1 + length > message.size()) return broken();
    if (wire.size() + 1 + length > kMaxName) return broken();
    wire.insert(wire.end(), message.begin() + static_cast<ptrdiff_t>(at),
                message.begin() + static_cast<ptrdiff_t>(at + 1 + length));
    at += 1U + length;
    if (length == 0) break;
  }
  if (!jumped) reader.skip(at - reader.position());
  return make_name(std::move(wire));
}

std::optional<RdataShape> rdata_shape(Type type) {
  switch (static_cast<uint16_t>(type)) {
    case 2:   // NS
    case 5:   // CNAME
    case 12:  // PTR
    case 39:  // DNAME
      return RdataShape{0, 1};
    case 6:   // SOA, and five numbers
    case 14:  // MINFO
    case 17:  // RP
      return RdataShape{0, 2};
    case 15:  // MX
    case 18:  // AFSDB
    case 21:  // RT
    case 36:  // KX
      return RdataShape{2, 1};
    case 26:  // PX
      return RdataShape{2, 2};
    case 33:  // SRV
      return RdataShape{6, 1};
    default:
      return std::nullopt;
  }
}

MessageWriter::MessageWriter(uint16_t id, uint16_t flags) {
  out_.be16(id);
  out_.be16(flags);
  for (int section = 0; section < 4; ++section) out_.be16(0);  // counted up as records come
}

void MessageWriter::count(size_t at) {
  const Bytes& bytes = out_.view();
  const int value = (bytes[at] << 8 | bytes[at + 1]) + 1;
  out_.patch_be16(at, static_cast<uint16_t>(value));
}

void MessageWriter::name(ByteView wire) {
  for (size_t at = 0; at < wire.size(); at += 1U + wire[at]) {
    if (wire[at] == 0) break;
    const std::string suffix = folded(wire.subspan(at));
    if (const auto known = offsets_.find(suffix); known != offsets_.end()) {
      out_.be16(static_cast<uint16_t>(0xC000 | known->second));
      return;
    }
    if (out_.size() < 0x4000) offsets_.emplace(suffix, static_cast<uint16_t>(out_.size()));
    out_.bytes(wire.subspan(at, 1U + wire[at]));
  }
  out_.u8(0);
}

void MessageWriter::question(const Question& question) {
  name(question.name.wire);
  out_.be16(static_cast<uint16_t>(question.type));
  out_.be16(kClassIn);
  count(4);
}

void MessageWriter::record(const Record& record) {
  name(record.owner.wire);
  out_.be16(static_cast<uint16_t>(record.type));
  out_.be16(record.rclass);
  out_.be32(record.ttl);
  const size_t length_at = out_.size();
  out_.be16(0);
  // Only the types of RFC 1035 may be compressed (RFC 3597 section 4).
  constexpr std::array kOneName = {Type::kNs, Type::kCname, Type::kPtr};
  if (std::find(kOneName.begin(), kOneName.end(), record.type) != kOneName.end()) {
    name(record.rdata);
  } else {
    out_.bytes(record.rdata);
  }
  out_.patch_be16(length_at, static_cast<uint16_t>(out_.size() - length_at - 2));
}

void MessageWriter::answer(const Record& value) {
  record(value);
  count(6);
}

void MessageWriter::authority(const Record& value) {
  record(value);
  count(8);
}

void MessageWriter::opt(uint16_t udp_size, uint16_t extended_rcode, bool dnssec_ok,
                        ByteView options) {
  out_.u8(0);
  out_.be16(static_cast<uint16_t>(Type::kOpt));
  out_.be16(udp_size);
  out_.be32(static_cast<uint32_t>(extended_rcode >> 4) << 24 | (dnssec_ok ? kOptDo : 0));
  out_.be16(static_cast<uint16_t>(options.size()));
  out_.bytes(options);
  count(10);
}

}  // namespace sandbox::dns
