#include "net/dns/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::dns {
namespace {

using namespace std::string_literals;  // NOLINT: names with NUL

// ---- building messages ----

policy::HostName host(const std::string& text) {
  return *policy::HostName::parse(text);
}

// "www.Example.org" as labels, letters kept.
Bytes wire(const std::string& dotted) {
  ByteWriter out;
  size_t at = 0;
  while (at < dotted.size()) {
    size_t dot = dotted.find('.', at);
    if (dot == std::string::npos) dot = dotted.size();
    out.u8(static_cast<uint8_t>(dot - at));
    out.text(std::string_view(dotted).substr(at, dot - at));
    at = dot + 1;
  }
  out.u8(0);
  return out.take();
}

class Message {
 public:
  Message(uint16_t id, uint16_t flags) {
    out_.be16(id);
    out_.be16(flags);
    out_.zeros(8);
  }
  Message& counts(int questions, int answers, int authority, int additional) {
    int at = 4;
    for (const int count : {questions, answers, authority, additional}) {
      out_.patch_be16(static_cast<size_t>(at), static_cast<uint16_t>(count));
      at += 2;
    }
    return *this;
  }
  Message& question(ByteView name, uint16_t type, uint16_t qclass = 1) {
    out_.bytes(name);
    out_.be16(type);
    out_.be16(qclass);
    return *this;
  }
  Message& record(ByteView owner, uint16_t type, ByteView rdata, uint32_t ttl = 300,
                  uint16_t rclass = 1) {
    out_.bytes(owner);
    out_.be16(type);
    out_.be16(rclass);
    out_.be32(ttl);
    out_.be16(static_cast<uint16_t>(rdata.size()));
    out_.bytes(rdata);
    return *this;
  }
  Message& opt(uint16_t size, uint32_t ttl = 0, ByteView options = {}) {
    return record(Bytes{0}, 41, options, ttl, size);
  }
  Message& raw(ByteView bytes) {
    out_.bytes(bytes);
    return *this;
  }
  operator Bytes() const { return out_.view(); }  // NOLINT
 private:
  ByteWriter out_;
};

Message query_message(const std::string& name, Type type = Type::kA) {
  return Message(0x1234, 0x0100)
      .counts(1, 0, 0, 0)
      .question(wire(name), static_cast<uint16_t>(type));
}

Query query(const std::string& name, Type type = Type::kA, bool opt = true, uint16_t size = 1232) {
  Message message = query_message(name, type);
  if (opt) message.counts(1, 0, 0, 1).opt(size);
  return std::get<Query>(parse_query(Bytes(message)));
}

Bytes address(const std::string& text) {
  ByteWriter out;
  out.be32(Ipv4::parse(text)->value);
  return out.take();
}

// A reply read back, as text: "NOERROR aa" and one line per record.
std::string shown(const Bytes& reply, const Question& question) {
  const auto answer = parse_answer(reply, question);
  if (!answer) return "unreadable: " + answer.error().message;
  std::string out = std::to_string(static_cast<int>(answer->rcode));
  if (answer->truncated) out += " tc";
  if (answer->authentic_data) out += " ad";
  const auto add = [&out](const std::vector<Record>& records, const std::string& section) {
    for (const Record& record : records) {
      out += "\n" + section + record.owner.text() + " " + std::to_string(record.ttl) + " " +
             type_text(record.type);
      ByteReader reader(record.rdata);
      if (record.type == Type::kA) out += " " + Ipv4{reader.be32()}.text();
    }
  };
  add(answer->answers, "");
  add(answer->authority, "authority: ");
  return out;
}

// ---- queries ----

TEST(Query, is_read_with_its_flags_and_letter_case) {
  Message message = Message(7, 0x0100 | 0x0010 | 0x0020)
                        .counts(1, 0, 0, 1)
                        .question(wire("WWW.Example.org"), 28)
                        .opt(4096, 0x8000);
  const auto parsed = parse_query(Bytes(message));
  ASSERT_TRUE(std::holds_alternative<Query>(parsed));
  const Query& q = std::get<Query>(parsed);
  EXPECT_EQ(q.id, 7);
  EXPECT_EQ(q.question.name.host->text(), "www.example.org");
  EXPECT_EQ(q.question.name.text(), "WWW.Example.org");
  EXPECT_EQ(q.question.type, Type::kAaaa);
  EXPECT_TRUE(q.flags.recursion_desired && q.flags.checking_disabled && q.flags.authentic_data &&
              q.flags.dnssec_ok && q.has_opt);
  EXPECT_EQ(q.udp_size, 4096);
}

TEST(Query, without_opt_takes_512_bytes) {
  EXPECT_EQ(query("a.b", Type::kA, false).udp_size, 512);
  EXPECT_EQ(query("a.b", Type::kA, true, 100).udp_size, 512);
}

struct BadCase {
  const char* what;
  Bytes message;
  bool answerable;
  Rcode rcode;
};

std::vector<BadCase> bad_queries() {
  const Bytes name = wire("a.example.org");
  const auto q = [&](uint16_t flags = 0x0100) { return Message(9, flags); };
  const auto cut = [&](size_t size) {
    Bytes whole = query_message("a.example.org");
    whole.resize(size);
    return whole;
  };
  Bytes long_name;
  for (int i = 0; i < 4; ++i) {
    long_name.push_back(63);
    long_name.insert(long_name.end(), 63, 'a');
  }
  long_name.push_back(0);
  const Bytes self_pointer = {0xC0, 0x0C};
  const Bytes label_then_pointer = {1, 'a', 0xC0, 0x0C};
  const Bytes reserved_label = {0x41, 'a', 0};
  const Bytes label_past_end = {63, 'a'};
  std::vector<BadCase> cases = {
      {"nothing", {}, false, Rcode::kFormErr},
      {"half a header", cut(11), false, Rcode::kFormErr},
      {"a reply", q(0x8180).counts(1, 0, 0, 0).question(name, 1), false, Rcode::kFormErr},
      {"a header alone", cut(12), true, Rcode::kFormErr},
      {"a name cut short", cut(20), true, Rcode::kFormErr},
      {"no class", cut(Bytes(query_message("a.example.org")).size() - 2), true, Rcode::kFormErr},
      {"opcode STATUS", q(0x1100).counts(1, 0, 0, 0).question(name, 1), true, Rcode::kNotImp},
      {"opcode UPDATE", q(0x2800).counts(1, 0, 0, 0).question(name, 1), true, Rcode::kNotImp},
      {"no question", q().counts(0, 0, 0, 0), true, Rcode::kFormErr},
      {"two questions", q().counts(2, 0, 0, 0).question(name, 1).question(name, 28), true,
       Rcode::kFormErr},
      {"65535 questions", q().counts(65535, 0, 0, 0).question(name, 1), true, Rcode::kFormErr},
      {"TC", q(0x0300).counts(1, 0, 0, 0).question(name, 1), true, Rcode::kFormErr},
      {"an answer", q().counts(1, 1, 0, 0).question(name, 1).record(name, 1, Bytes(4)), true,
       Rcode::kFormErr},
      {"an authority record", q().counts(1, 0, 1, 0).question(name, 1).record(name, 1, Bytes(4)),
       true, Rcode::kFormErr},
      {"an additional record that is no OPT",
       q().counts(1, 0, 0, 1).question(name, 1).record(Bytes{0}, 250, {}), true, Rcode::kFormErr},
      {"two OPT", q().counts(1, 0, 0, 2).question(name, 1).opt(512).opt(512), true,
       Rcode::kFormErr},
      {"OPT with a name", q().counts(1, 0, 0, 1).question(name, 1).record(name, 41, {}), true,
       Rcode::kFormErr},
      {"OPT promised, absent", q().counts(1, 0, 0, 1).question(name, 1), true, Rcode::kFormErr},
      {"an option longer than OPT",
       q().counts(1, 0, 0, 1).question(name, 1).opt(512, 0, Bytes{0, 10, 0, 9, 1}), true,
       Rcode::kFormErr},
      {"half an option", q().counts(1, 0, 0, 1).question(name, 1).opt(512, 0, Bytes{0, 10, 0}),
       true, Rcode::kFormErr},
      {"EDNS version 1", q().counts(1, 0, 0, 1).question(name, 1).opt(512, 1U << 16), true,
       Rcode::kBadVers},
      {"bytes behind", q().counts(1, 0, 0, 0).question(name, 1).raw(Bytes{0}), true,
       Rcode::kFormErr},
      {"OPT behind, not counted", q().counts(1, 0, 0, 0).question(name, 1).opt(512), true,
       Rcode::kFormErr},
      {"a pointer to itself", q().counts(1, 0, 0, 0).question(self_pointer, 1), true,
       Rcode::kFormErr},
      {"a pointer into the header", q().counts(1, 0, 0, 0).question(Bytes{0xC0, 4}, 1), true,
       Rcode::kFormErr},
      {"a pointer behind a label", q().counts(1, 0, 0, 0).question(label_then_pointer, 1), true,
       Rcode::kFormErr},
      {"a label of the reserved kind", q().counts(1, 0, 0, 0).question(reserved_label, 1), true,
       Rcode::kFormErr},
      {"a label past the end", q().counts(1, 0, 0, 0).raw(label_past_end), true, Rcode::kFormErr},
      {"a name of 257 bytes", q().counts(1, 0, 0, 0).question(long_name, 1), true, Rcode::kFormErr},
      {"class CHAOS", q().counts(1, 0, 0, 0).question(name, 16, 3), true, Rcode::kRefused},
      {"class ANY", q().counts(1, 0, 0, 0).question(name, 1, 255), true, Rcode::kRefused},
      {"AXFR", q().counts(1, 0, 0, 0).question(name, 252), true, Rcode::kNotImp},
      {"IXFR", q().counts(1, 0, 0, 0).question(name, 251), true, Rcode::kNotImp},
      {"TSIG", q().counts(1, 0, 0, 0).question(name, 250), true, Rcode::kNotImp},
      {"type OPT", q().counts(1, 0, 0, 0).question(name, 41), true, Rcode::kNotImp},
      {"type 0", q().counts(1, 0, 0, 0).question(name, 0), true, Rcode::kNotImp},
  };
  return cases;
}

class BadQueries : public testing::TestWithParam<BadCase> {};

TEST_P(BadQueries, are_answered_as_such_or_not_at_all) {
  const auto parsed = parse_query(GetParam().message);
  ASSERT_TRUE(std::holds_alternative<BadQuery>(parsed));
  const BadQuery& bad = std::get<BadQuery>(parsed);
  EXPECT_EQ(bad.answerable, GetParam().answerable);
  if (!bad.answerable) return;
  EXPECT_EQ(bad.rcode, GetParam().rcode) << bad.why;
  const Bytes reply = build_malformed(bad);
  ASSERT_GE(reply.size(), 12U);
  EXPECT_EQ(reply[2] & 0x80, 0x80);
  EXPECT_EQ(reply[3] & 0x0F, static_cast<int>(bad.rcode) & 0x0F);
  EXPECT_EQ(reply.size(), bad.rcode == Rcode::kBadVers ? 23U : 12U);
}

INSTANTIATE_TEST_SUITE_P(Cases, BadQueries, testing::ValuesIn(bad_queries()), [](const auto& each) {
  std::string name = each.param.what;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

TEST(Query, for_what_is_no_host_name_is_read_but_has_no_host) {
  const auto name_of = [](ByteView name) {
    Message message = Message(1, 0x0100).counts(1, 0, 0, 0).question(name, 1);
    return std::get<Query>(parse_query(Bytes(message))).question.name;
  };
  const Name nul = name_of(Bytes{3, 'a', 0, 'b', 3, 'o', 'r', 'g', 0});
  EXPECT_FALSE(nul.host);
  EXPECT_EQ(nul.text(), "a\\000b.org");
  const Name dot = name_of(Bytes{5, 'a', '.', 'o', 'r', 'g', 0});
  EXPECT_FALSE(dot.host);
  EXPECT_EQ(dot.text(), "a\\046org");
  const Name root = name_of(Bytes{0});
  EXPECT_FALSE(root.host);
  EXPECT_EQ(root.text(), ".");
  EXPECT_FALSE(name_of(wire("127.0.0.1")).host);
  EXPECT_TRUE(name_of(wire("_dmarc.example.org")).host);
}

TEST(Query, of_a_private_reverse_zone_is_known) {
  for (const char* yes :
       {"1.0.0.10.in-addr.arpa", "5.1.168.192.in-addr.arpa", "1.0.0.127.in-addr.arpa",
        "1.0.64.100.in-addr.arpa",
        "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa"})
    EXPECT_TRUE(is_private_reverse(host(yes))) << yes;
  for (const char* no :
       {"8.8.8.8.in-addr.arpa", "10.in-addr.arpa", "256.0.0.10.in-addr.arpa", "example.org",
        "8.8.8.8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.8.4.1.0.0.2.ip6.arpa"})
    EXPECT_FALSE(is_private_reverse(host(no))) << no;
}

TEST(Query, goes_upstream_as_a_message_of_our_own) {
  Question question{Name::of(host("a.example.org")), Type::kMx};
  const Bytes out = build_query(99, question, {true, true, false, true});
  const auto read = parse_query(out);
  ASSERT_TRUE(std::holds_alternative<Query>(read));
  const Query& q = std::get<Query>(read);
  EXPECT_EQ(q.id, 99);
  EXPECT_EQ(q.question.type, Type::kMx);
  EXPECT_EQ(q.udp_size, 1232);
  EXPECT_TRUE(q.flags.dnssec_ok && q.flags.checking_disabled && !q.flags.authentic_data);
  EXPECT_EQ(Bytes(out.end() - 11, out.end())[0], 0) << "OPT is the last thing in it";
}

// ---- answers ----

const Bytes kQuestionPointer = {0xC0, 0x0C};

Message answer_message(int answers, int authority = 0, int additional = 0,
                       uint16_t flags = 0x8180) {
  return Message(0x1234, flags)
      .counts(1, answers, authority, additional)
      .question(wire("www.example.org"), 1);
}

Question asked(Type type = Type::kA) {
  return {Name::of(host("www.example.org")), type};
}

TEST(Answer, follows_the_chain_from_the_question_in_any_order) {
  Message message = answer_message(4)
                        .record(wire("c.cdn.net"), 1, address("151.101.1.6"), 60)
                        .record(wire("b.cdn.net"), 5, wire("C.cdn.net"), 40)
                        .record(wire("other.net"), 1, address("8.8.8.8"))
                        .record(kQuestionPointer, 5, wire("b.cdn.net"), 500);
  const auto answer = parse_answer(Bytes(message), asked());
  ASSERT_TRUE(answer) << answer.error().message;
  ASSERT_EQ(answer->chain.size(), 2U);
  EXPECT_EQ(answer->chain[0].host->text(), "b.cdn.net");
  EXPECT_EQ(answer->chain[1].host->text(), "c.cdn.net");
  EXPECT_THAT(answer->addresses,
              testing::ElementsAre(AddressRecord{*Ipv4::parse("151.101.1.6"), 40}));
}

TEST(Answer, takes_addresses_of_the_end_of_the_chain_only) {
  Message message = answer_message(4)
                        .record(kQuestionPointer, 5, wire("b.cdn.net"))
                        .record(kQuestionPointer, 1, address("6.6.6.6"))
                        .record(wire("b.cdn.net"), 1, address("151.101.1.6"))
                        .record(wire("b.cdn.net"), 1, address("151.101.1.6"));
  const auto answer = parse_answer(Bytes(message), asked());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->addresses.size(), 1U);
}

TEST(Answer, takes_nothing_of_authority_additional_or_another_class) {
  Message message = answer_message(1, 1, 1)
                        .record(kQuestionPointer, 1, address("1.1.1.1"), 300, 3)
                        .record(kQuestionPointer, 1, address("2.2.2.2"))
                        .record(kQuestionPointer, 1, address("3.3.3.3"));
  const auto answer = parse_answer(Bytes(message), asked());
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->addresses.empty());
}

TEST(Answer, reads_compressed_names_inside_records) {
  // b.example.org as "b" and a pointer to "example.org" in the question
  Message message = answer_message(2)
                        .record(kQuestionPointer, 5, Bytes{1, 'b', 0xC0, 0x10})
                        .record(Bytes{1, 'b', 0xC0, 0x10}, 1, address("151.101.1.6"));
  const auto answer = parse_answer(Bytes(message), asked());
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->chain.at(0).host->text(), "b.example.org");
  EXPECT_EQ(answer->addresses.size(), 1U);
}

TEST(Answer, reads_an_absurd_ttl_as_zero) {
  const auto answer = parse_answer(
      Bytes(answer_message(1).record(kQuestionPointer, 1, address("1.2.3.4"), 0x80000001)),
      asked());
  EXPECT_EQ(answer->addresses.at(0).ttl, 0U);
}

TEST(Answer, reads_the_extended_code) {
  const auto answer = parse_answer(Bytes(answer_message(0, 0, 1).opt(512, 1U << 24)), asked());
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->rcode, Rcode::kBadVers);
}

std::vector<std::pair<const char*, Bytes>> bad_answers() {
  const auto chain = [](int length) {
    Message message = answer_message(length);
    for (int i = 0; i < length; ++i)
      message.record(i == 0 ? kQuestionPointer : wire("n" + std::to_string(i) + ".net"), 5,
                     wire("n" + std::to_string(i + 1) + ".net"));
    return Bytes(message);
  };
  return {
      {"nothing", {}},
      {"a query", query_message("www.example.org")},
      {"another name", Message(1, 0x8180).counts(1, 0, 0, 0).question(wire("evil.net"), 1)},
      {"another type", Message(1, 0x8180).counts(1, 0, 0, 0).question(wire("www.example.org"), 28)},
      {"another class",
       Message(1, 0x8180).counts(1, 0, 0, 0).question(wire("www.example.org"), 1, 3)},
      {"no question", Message(1, 0x8180).counts(0, 0, 0, 0)},
      {"an answer promised, absent", answer_message(1)},
      {"a record cut short", answer_message(1).raw(Bytes{0xC0, 0x0C, 0, 1, 0, 1})},
      {"rdata past the end",
       answer_message(1).raw(Bytes{0xC0, 0x0C, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1, 2})},
      {"an A record of 3 bytes", answer_message(1).record(kQuestionPointer, 1, Bytes(3))},
      {"an A record of 16 bytes", answer_message(1).record(kQuestionPointer, 1, Bytes(16))},
      {"a pointer to itself", answer_message(1).record(Bytes{0xC0, 33}, 1, Bytes(4))},
      {"a pointer forwards", answer_message(1).record(Bytes{0xC0, 60}, 1, Bytes(4))},
      {"an alias past its rdata", answer_message(1).record(kQuestionPointer, 5, Bytes{5, 'a'})},
      {"two pointers at each other", answer_message(2)
                                         .record(kQuestionPointer, 5, Bytes{0xC0, 47})
                                         .record(Bytes{0xC0, 45}, 1, Bytes(4))},
      {"a loop", answer_message(1).record(kQuestionPointer, 5, wire("www.example.org"))},
      {"a loop of two", answer_message(2)
                            .record(kQuestionPointer, 5, wire("b.net"))
                            .record(wire("b.net"), 5, wire("www.example.org"))},
      {"two aliases", answer_message(2)
                          .record(kQuestionPointer, 5, wire("b.net"))
                          .record(kQuestionPointer, 5, wire("c.net"))},
      {"17 aliases", chain(17)},
  };
}

TEST(Answer, that_is_malformed_or_ambiguous_is_refused) {
  for (const auto& [what, message] : bad_answers())
    EXPECT_FALSE(parse_answer(message, asked())) << what;
}

// ---- replies ----

TEST(Reply, denied_carries_the_reason_only_with_opt) {
  const Query with_opt = query("Evil.NET", Type::kTxt);
  const Bytes reply = build_denied(with_opt, Ede::kProhibited, "evil.net is refused");
  EXPECT_EQ(shown(reply, with_opt.question), "3\nauthority: NET 1 SOA");
  EXPECT_THAT(std::string(as_text(reply)),
              testing::HasSubstr("\0\x0F\0\x15\0\x12"s + "evil.net is refused"));
  EXPECT_THAT(std::string(as_text(reply)), testing::HasSubstr("\4Evil\3NET"));

  const Query without = query("evil.net", Type::kTxt, false);
  const Bytes plain = build_denied(without, Ede::kProhibited, "evil.net is refused");
  EXPECT_EQ(shown(plain, without.question), "3\nauthority: net 1 SOA");
  EXPECT_THAT(std::string(as_text(plain)), testing::Not(testing::HasSubstr("is refused")));
}

TEST(Reply, a_denied_parent_is_there_and_has_nothing) {
  const Query parent = query("example.org");
  const Bytes reply = build_denied_parent(parent, Ede::kProhibited, "example.org is refused");
  EXPECT_EQ(shown(reply, parent.question), "0\nauthority: org 1 SOA");
  EXPECT_THAT(std::string(as_text(reply)), testing::HasSubstr("example.org is refused"));

  Query root = query("org");
  root.question.name.wire = {0};
  root.question.name.host.reset();
  EXPECT_EQ(shown(build_denied_parent(root, Ede::kProhibited, ""), root.question),
            "0\nauthority: . 1 SOA");
}

TEST(Reply, no_data_is_an_empty_success) {
  const Query q = query("a.example.org", Type::kAaaa);
  EXPECT_EQ(shown(build_no_data(q), q.question), "0");
}

TEST(Reply, private_reverse_is_a_cacheable_denial) {
  const Query q = query("5.1.168.192.in-addr.arpa", Type::kPtr);
  EXPECT_EQ(shown(build_private_reverse(q), q.question),
            "3\nauthority: 1.168.192.in-addr.arpa 3600 SOA");
}

TEST(Reply, gives_own_addresses) {
  const Query q = query("host.internal");
  EXPECT_EQ(shown(build_addresses(q, {{*Ipv4::parse("192.0.0.1"), 60}}), q.question),
            "0\nhost.internal 60 A 192.0.0.1");
}

TEST(Reply, shows_vouched_addresses_only_and_nothing_additional) {
  Message message = answer_message(5, 2, 1, 0x81A0)
                        .record(kQuestionPointer, 5, wire("b.cdn.net"), 9)
                        .record(wire("b.cdn.net"), 1, address("151.101.1.6"))
                        .record(wire("b.cdn.net"), 1, address("10.0.0.1"))
                        .record(wire("c.cdn.net"), 1, address("151.101.1.6"))
                        .record(wire("b.cdn.net"), 28, Bytes(16))
                        .record(wire("cdn.net"), 2, wire("ns.cdn.net"))
                        .record(wire("cdn.net"), 6, Bytes(22))
                        .record(wire("ns.cdn.net"), 1, address("9.9.9.9"));
  const Query q = query("WWW.example.org");
  const auto answer = parse_answer(Bytes(message), q.question);
  ASSERT_TRUE(answer) << answer.error().message;
  const Bytes reply = build_reply(q, *answer, {*Ipv4::parse("151.101.1.6")});
  EXPECT_EQ(shown(reply, q.question),
            "0\nWWW.example.org 9 CNAME\nb.cdn.net 300 A 151.101.1.6\nauthority: cdn.net 300 SOA");
}

TEST(Reply, keeps_ad_only_when_asked_for_and_unchanged) {
  const Bytes message =
      answer_message(1, 0, 0, 0x81A0).record(kQuestionPointer, 1, address("1.2.3.4"));
  const auto answer = parse_answer(message, asked());
  Query q = query("www.example.org");
  EXPECT_EQ(shown(build_reply(q, *answer, {*Ipv4::parse("1.2.3.4")}), q.question),
            "0\nwww.example.org 300 A 1.2.3.4");
  q.flags.authentic_data = true;
  EXPECT_EQ(shown(build_reply(q, *answer, {*Ipv4::parse("1.2.3.4")}), q.question),
            "0 ad\nwww.example.org 300 A 1.2.3.4");
  EXPECT_EQ(shown(build_reply(q, *answer, {}), q.question), "0");
}

TEST(Reply, keeps_the_code_of_a_missing_name_and_hides_others) {
  const Query q = query("www.example.org");
  const auto missing = parse_answer(Bytes(answer_message(0, 0, 0, 0x8183)), q.question);
  EXPECT_EQ(shown(build_reply(q, *missing, {}), q.question), "3");
  const auto odd = parse_answer(Bytes(answer_message(0, 0, 0, 0x8186)), q.question);
  EXPECT_EQ(shown(build_reply(q, *odd, {}), q.question), "2");
}

// priority 1, target ".", then the parameters
Bytes binding(std::initializer_list<std::pair<uint16_t, Bytes>> parameters, uint16_t priority = 1) {
  ByteWriter out;
  out.be16(priority);
  out.u8(0);
  for (const auto& [key, value] : parameters) {
    out.be16(key);
    out.be16(static_cast<uint16_t>(value.size()));
    out.bytes(value);
  }
  return out.take();
}

const Bytes kAlpnAll = {2, 'h', '3', 2, 'h', '2', 5, 'h', '3', '-', '2', '9'};
const Bytes kAlpnH2 = {2, 'h', '2'};
const Bytes kAlpnH3 = {2, 'h', '3'};

TEST(Reply, takes_ech_hints_and_h3_out_of_service_bindings) {
  struct Case {
    const char* what;
    Bytes in;
    std::optional<Bytes> out;  // nullopt: the record is left out
  };
  const Case cases[] = {
      {"everything forbidden",
       binding({{1, kAlpnAll}, {3, {1, 187}}, {4, Bytes(4)}, {5, Bytes(9)}, {6, Bytes(16)}}),
       binding({{1, kAlpnH2}, {3, {1, 187}}})},
      {"nothing forbidden", binding({{1, kAlpnH2}, {7, {'/', 'q'}}}),
       binding({{1, kAlpnH2}, {7, {'/', 'q'}}})},
      {"h3 alone falls back to the default", binding({{1, kAlpnH3}}), binding({})},
      {"h3 alone without a default", binding({{1, kAlpnH3}, {2, {}}}), std::nullopt},
      {"h2 without a default", binding({{1, kAlpnAll}, {2, {}}}), binding({{1, kAlpnH2}, {2, {}}})},
      {"mandatory of what went", binding({{0, {0, 1, 0, 4}}, {1, kAlpnH2}, {4, Bytes(4)}}),
       binding({{0, {0, 1}}, {1, kAlpnH2}})},
      {"mandatory of nothing else", binding({{0, {0, 5}}, {5, Bytes(3)}}), binding({})},
      {"an alias", binding({}, 0), binding({}, 0)},
      {"keys out of order", binding({{3, {1, 187}}, {1, kAlpnH2}}), std::nullopt},
      {"a key twice", binding({{3, {1, 187}}, {3, {1, 187}}}), std::nullopt},
      {"malformed alpn", binding({{1, {9, 'h'}}}), std::nullopt},
      {"an empty protocol", binding({{1, {0}}}), std::nullopt},
      {"malformed mandatory", binding({{0, {0, 4, 1}}, {4, Bytes(4)}}), std::nullopt},
      {"cut short", Bytes{0, 1, 0, 0, 1, 0}, std::nullopt},
      {"a compressed target", Bytes{0, 1, 0xC0, 0x0C}, std::nullopt},
  };
  for (const uint16_t type : {uint16_t{65}, uint16_t{64}}) {
    const Query q = query("www.example.org", static_cast<Type>(type));
    for (const Case& each : cases) {
      Message message = Message(1, 0x8180)
                            .counts(1, 1, 0, 0)
                            .question(wire("www.example.org"), type)
                            .record(kQuestionPointer, type, each.in);
      const auto answer = parse_answer(Bytes(message), q.question);
      ASSERT_TRUE(answer) << each.what;
      const auto reply = parse_answer(build_reply(q, *answer, {}), q.question);
      ASSERT_TRUE(reply) << each.what;
      ASSERT_EQ(reply->answers.size(), each.out ? 1U : 0U) << each.what;
      if (each.out) {
        EXPECT_EQ(reply->answers[0].rdata, *each.out) << each.what;
      }
    }
  }
}

TEST(Reply, keeps_names_inside_records_of_other_types) {
  ByteWriter mx;
  mx.be16(10);
  mx.bytes(Bytes{2, 'm', 'x', 0xC0, 0x10});
  Message message = Message(1, 0x8180)
                        .counts(1, 1, 0, 0)
                        .question(wire("www.example.org"), 15)
                        .record(kQuestionPointer, 15, mx.view());
  const Query q = query("www.example.org", Type::kMx);
  const auto answer = parse_answer(Bytes(message), q.question);
  ASSERT_TRUE(answer);
  const auto reply = parse_answer(build_reply(q, *answer, {}), q.question);
  Bytes expected = {0, 10};
  const Bytes name = wire("mx.example.org");
  expected.insert(expected.end(), name.begin(), name.end());
  EXPECT_EQ(reply->answers.at(0).rdata, expected);
}

TEST(Reply, that_does_not_fit_is_truncated_to_its_question) {
  std::vector<AddressRecord> many(60, {*Ipv4::parse("1.2.3.4"), 60});
  const Query small = query("www.example.org", Type::kA, false);
  EXPECT_EQ(udp_limit(small), 512U);
  const Bytes cut = fit(small, build_addresses(small, many), udp_limit(small));
  EXPECT_EQ(shown(cut, small.question), "0 tc");

  const Query large = query("www.example.org", Type::kA, true, 65535);
  EXPECT_EQ(udp_limit(large), 1232U);
  EXPECT_THAT(shown(fit(large, build_addresses(large, many), udp_limit(large)), large.question),
              testing::StartsWith("0\nwww.example.org 60 A"));
}

TEST(Reply, too_large_even_for_tcp_is_a_failure) {
  std::vector<AddressRecord> many(6000, {*Ipv4::parse("1.2.3.4"), 60});
  const Query q = query("www.example.org");
  EXPECT_EQ(shown(fit(q, build_addresses(q, many), 0xFFFF), q.question), "2");
}

// ---- TCP ----

TEST(TcpFramer, gives_pipelined_messages_however_they_are_cut) {
  const Bytes one = frame_for_tcp(as_bytes("first"));
  const Bytes two = frame_for_tcp(as_bytes("second"));
  Bytes stream = one;
  stream.insert(stream.end(), two.begin(), two.end());
  for (size_t step = 1; step <= stream.size(); ++step) {
    TcpFramer framer;
    std::vector<std::string> seen;
    Bytes message;
    for (size_t at = 0; at < stream.size(); at += step) {
      framer.feed(ByteView(stream).subspan(at, std::min(step, stream.size() - at)));
      while (framer.next(message) == TcpFramer::Next::kMessage) seen.emplace_back(as_text(message));
    }
    EXPECT_THAT(seen, testing::ElementsAre("first", "second")) << step;
  }
}

TEST(TcpFramer, refuses_what_is_larger_than_any_query) {
  TcpFramer framer;
  framer.feed(Bytes{0x10, 0x01});
  Bytes message;
  EXPECT_EQ(framer.next(message), TcpFramer::Next::kBroken);
}

}  // namespace
}  // namespace sandbox::dns
