// The upstream's answers. Trusted to be neither well formed nor well meant: the name servers of an
// allowed zone may belong to whoever wrote the program in the guest.

#include <algorithm>
#include <set>

#include "net/dns/format.h"

namespace sandbox::dns {

namespace {

constexpr size_t kMaxChain = 16;

// Rdata with the names in it uncompressed, so that it can be moved to another message.
std::optional<Bytes> unpack_rdata(ByteReader& reader, ByteView message, Type type, size_t length) {
  const auto shape = rdata_shape(type);
  if (!shape) {
    const ByteView raw = reader.take(length);
    if (type == Type::kA && raw.size() != 4) return std::nullopt;
    return Bytes(raw.begin(), raw.end());
  }
  const size_t end = reader.position() + length;
  if (end > message.size()) return std::nullopt;
  ByteWriter out;
  out.bytes(reader.take(shape->before));
  for (int i = 0; i < shape->names; ++i)
    out.bytes(read_name(reader, message, Pointers::kAllowed).wire);
  if (!reader.ok() || reader.position() > end) return std::nullopt;
  out.bytes(reader.take(end - reader.position()));
  return out.take();
}

std::optional<Record> read_record(ByteReader& reader, ByteView message) {
  Record record;
  record.owner = read_name(reader, message, Pointers::kAllowed);
  record.type = static_cast<Type>(reader.be16());
  record.rclass = reader.be16();
  const uint32_t ttl = reader.be32();
  // In OPT the field holds flags instead; elsewhere a set top bit reads as 0.
  record.ttl = record.type != Type::kOpt && ttl > 0x7FFFFFFF ? 0 : ttl;
  const size_t length = reader.be16();
  if (!reader.ok()) return std::nullopt;
  auto rdata = unpack_rdata(reader, message, record.type, length);
  if (!rdata || !reader.ok()) return std::nullopt;
  record.rdata = std::move(*rdata);
  return record;
}

bool read_section(ByteReader& reader, ByteView message, uint16_t count, std::vector<Record>& out) {
  for (uint16_t i = 0; i < count; ++i) {
    auto record = read_record(reader, message);
    if (!record) return false;
    out.push_back(std::move(*record));
  }
  return true;
}

// The CNAME that `name` owns. Two different ones leave open which a client would follow: an error.
Result<const Record*> alias_of(const std::vector<Record>& records, const Name& name) {
  const Record* found = nullptr;
  for (const Record& record : records) {
    if (record.type != Type::kCname || record.rclass != kClassIn || !record.owner.same_as(name))
      continue;
    if (found != nullptr && found->rdata != record.rdata)
      return fail(Code::kProtocol, "two aliases of {}", name.text());
    found = &record;
  }
  return found;
}

Name name_of_rdata(const Record& record) {
  ByteReader reader(record.rdata);
  return read_name(reader, record.rdata, Pointers::kForbidden);
}

Status follow_chain(Answer& answer, const Question& question) {
  Name at = question.name;
  uint32_t ttl = 0x7FFFFFFF;
  while (question.type != Type::kCname && question.type != Type::kAny) {
    ASSIGN(const Record* alias, alias_of(answer.answers, at));
    if (alias == nullptr) break;
    at = name_of_rdata(*alias);
    ttl = std::min(ttl, alias->ttl);
    if (answer.chain.size() == kMaxChain)
      return fail(Code::kProtocol, "more than {} aliases, or a loop", kMaxChain);
    answer.chain.push_back(at);
  }
  if (question.type != Type::kA && question.type != Type::kAny) return {};
  std::set<Ipv4> seen;
  for (const Record& record : answer.answers) {
    if (record.type != Type::kA || record.rclass != kClassIn || !record.owner.same_as(at)) continue;
    ByteReader reader(record.rdata);
    const Ipv4 address{reader.be32()};
    if (seen.insert(address).second)
      answer.addresses.push_back({address, std::min(ttl, record.ttl)});
  }
  return {};
}

}  // namespace

Result<Answer> parse_answer(ByteView message, const Question& question) {
  ByteReader reader(message);
  const Header header = read_header(reader);
  if (!reader.ok()) return fail(Code::kProtocol, "an answer of {} bytes", message.size());
  if ((header.flags & kQr) == 0 || (header.flags & kOpcodeMask) != 0 || header.questions != 1)
    return fail(Code::kProtocol, "no answer to a query");
  const Name asked = read_name(reader, message, Pointers::kForbidden);
  const uint16_t type = reader.be16();
  const uint16_t question_class = reader.be16();
  if (!reader.ok() || !asked.same_as(question.name) ||
      type != static_cast<uint16_t>(question.type) || question_class != kClassIn)
    return fail(Code::kProtocol, "an answer to another question");

  Answer answer;
  answer.truncated = (header.flags & kTc) != 0;
  answer.authentic_data = (header.flags & kAd) != 0;
  std::vector<Record> additional;
  const bool whole = read_section(reader, message, header.answers, answer.answers) &&
                     read_section(reader, message, header.authority, answer.authority) &&
                     read_section(reader, message, header.additional, additional);
  if (!whole) return fail(Code::kProtocol, "a malformed record in the answer");
  int rcode = header.flags & kRcodeMask;
  for (const Record& record : additional)
    if (record.type == Type::kOpt) rcode |= static_cast<int>(record.ttl >> 24) << 4;
  answer.rcode = static_cast<Rcode>(rcode);
  TRY(follow_chain(answer, question));
  return answer;
}

}  // namespace sandbox::dns
