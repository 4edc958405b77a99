// fuzz-libs: sandbox_dns
// The first byte chooses the direction: a guest's query, or an upstream's answer to a question.
// What was accepted must come back the same after it was written again.
#include <cstdlib>

#include "net/dns/message.h"

namespace {

using namespace sandbox;
using namespace sandbox::dns;

void require(bool holds) {
  if (!holds) std::abort();
}

void fuzz_query(ByteView bytes) {
  const auto parsed = parse_query(bytes);
  if (const auto* bad = std::get_if<BadQuery>(&parsed)) {
    if (bad->answerable) require(build_malformed(*bad).size() >= 12);
    return;
  }
  const Query& query = std::get<Query>(parsed);
  const auto again = parse_query(build_query(query.id, query.question, query.flags));
  const auto* copy = std::get_if<Query>(&again);
  require(copy != nullptr && copy->question.name.wire == query.question.name.wire &&
          copy->flags == query.flags);
  const std::string text = query.question.name.text();
  for (const Bytes& reply :
       {build_denied(query, Ede::kBlocked, text), build_denied_parent(query, Ede::kBlocked, text),
        build_no_data(query), build_private_reverse(query)}) {
    const Bytes fitted = fit(query, reply, udp_limit(query));
    require(fitted.size() <= 1232 && parse_answer(fitted, query.question).has_value());
  }
}

void fuzz_answer(ByteView bytes) {
  Query query;
  query.has_opt = true;
  query.flags.dnssec_ok = true;
  query.udp_size = 1232;
  // The question is the message's own, so that most inputs get past it.
  ByteReader reader(bytes);
  reader.skip(12);
  Bytes question(bytes.begin(), bytes.end());
  if (question.size() < 12) return;
  const Bytes counts = {0, 1, 0, 0, 0, 0, 0, 0};
  std::copy(counts.begin(), counts.end(), question.begin() + 4);
  question[2] = 1;
  question[3] = 0;
  size_t end = 12;
  while (end < question.size() && question[end] != 0 && question[end] < 64)
    end += 1U + question[end];
  if (end + 5 > question.size()) return;
  question.resize(end + 5);
  const auto asked = parse_query(question);
  if (!std::holds_alternative<Query>(asked)) return;
  query.question = std::get<Query>(asked).question;

  const auto answer = parse_answer(bytes, query.question);
  if (!answer) return;
  std::vector<Ipv4> allowed;
  for (const AddressRecord& each : answer->addresses)
    if (each.address.value % 2 == 0) allowed.push_back(each.address);
  const Bytes reply = fit(query, build_reply(query, *answer, allowed), 0xFFFF);
  const auto read = parse_answer(reply, query.question);
  require(read.has_value());
  for (const AddressRecord& each : read->addresses) require(each.address.value % 2 == 0);
  for (const Record& record : read->answers) require(record.type != Type::kAaaa);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const ByteView bytes(data + 1, size - 1);
  data[0] % 2 == 0 ? fuzz_query(bytes) : fuzz_answer(bytes);
  return 0;
}
