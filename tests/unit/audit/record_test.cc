#include "audit/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Record full() {
  Record record;
  record.proto = "tls";
  record.verdict = Outcome::kDeny;
  record.reason = "sni-denied";
  record.rule = "*.example.org";
  record.address = *IpAddress::parse("93.184.215.14");
  record.port = 443;
  record.names = {"a.example.org", "b.example.org"};
  record.sni = "evil.net";
  record.traffic = Traffic{1, 2};
  record.count = 3;
  record.text = "evil.net is not allowed";
  return record;
}

TEST(Record, ReadsBackFromItsJson) {
  Record summary;
  summary.kind = Kind::kSummary;
  summary.proto = "dns";
  summary.verdict = Outcome::kWouldDeny;
  summary.destinations = {"a", "b"};
  Record six = full();
  six.address = *IpAddress::parse("2001:db8::1");
  Record end;
  end.kind = Kind::kEnd;
  for (const Record& record : {full(), summary, six, end, Record{}}) {
    const auto again = from_json(to_json(record));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, record) << to_json(record);
  }
}

TEST(Record, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(to_json(Record{}), "{}");
  Record dns;
  dns.proto = "dns";
  dns.verdict = Outcome::kDeny;
  dns.reason = "no-allow-rule";
  dns.names = {"www.example.org"};
  EXPECT_EQ(
      to_json(dns),
      R"({"proto":"dns","verdict":"deny","reason":"no-allow-rule","names":["www.example.org"]})");
}

TEST(Record, IsAlwaysOneBoundedAsciiLine) {
  Record record = full();
  record.names.assign(1000, std::string(1000, '\x01'));
  record.destinations.assign(1000, std::string(1000, '\xff'));
  record.text = std::string(100000, '\n');
  record.host = "\x1b[31m\x7f\xc2\x9b\xff\n";
  const std::string line = to_json(record);
  EXPECT_LE(line.size(), kMaxRecordBytes);
  for (const char c : line) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
  const auto again = from_json(line);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->reason, "sni-denied");
  EXPECT_EQ(again->address, record.address);
}

TEST(Record, DestinationIsWhatWasAskedFor) {
  EXPECT_EQ(full().destination(), "evil.net");
  Record dial = full();
  dial.sni.clear();
  dial.proto = "tcp";
  EXPECT_EQ(dial.destination(), "93.184.215.14");
  Record dns;
  dns.proto = "dns";
  dns.names = {"www.example.org"};
  EXPECT_EQ(dns.destination(), "www.example.org");
  EXPECT_EQ(Record{}.destination(), "");
}

TEST(RecordFromJson, RefusesWhatIsNoRecord) {
  const std::string deep = "{\"x\":" + std::string(30000, '[') + std::string(30000, ']') + "}";
  for (const std::string& text : {std::string(),
                                  std::string("null"),
                                  std::string("[]"),
                                  std::string("{"),
                                  std::string("{}x"),
                                  std::string(R"({"proto":1})"),
                                  std::string(R"({"port":65536})"),
                                  std::string(R"({"port":-1})"),
                                  std::string(R"({"port":"443"})"),
                                  std::string(R"({"names":"a"})"),
                                  std::string(R"({"names":[1]})"),
                                  std::string(R"({"verdict":"maybe"})"),
                                  std::string(R"({"kind":"x"})"),
                                  std::string(R"({"address":"127.1"})"),
                                  std::string(R"({"bytes":[1,2]})"),
                                  std::string(R"({"bytes":{"out":-1}})"),
                                  std::string(R"({"count":1e3})"),
                                  std::string(R"({"text":null})"),
                                  std::string("{\"text\":\"\xff\"}"),
                                  deep,
                                  "{\"text\":\"" + std::string(kMaxRecordBytes, 'a') + "\"}"}) {
    const auto record = from_json(text);
    ASSERT_FALSE(record) << text.substr(0, 80);
    EXPECT_EQ(record.error().code, Code::kProtocol);
  }
}

TEST(Stamp, PutsItsMembersInFrontAndKeepsUnknownOnes) {
  const int64_t time = parse_rfc3339("2026-08-26T07:38:15.000000001Z");
  const auto line = stamp(R"({"proto":"file","path":"/a","op":{"n":1}})", 7, time, "files");
  ASSERT_TRUE(line);
  EXPECT_EQ(
      *line,
      R"({"seq":7,"time":"2026-08-26T07:38:15.000000001Z","source":"files","proto":"file","path":"/a","op":{"n":1}})");
  const auto entry = parse_log_line(*line);
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(entry->seq, 7U);
  EXPECT_EQ(entry->time_ns, time);
  EXPECT_EQ(entry->source, "files");
  EXPECT_EQ(entry->line, *line);
}

TEST(Stamp, LetsNoSourceClaimItsOwnStamp) {
  for (const auto* text :
       {R"({"seq":1})", R"({"time":"x"})", R"({"source":"gateway"})", R"({"names":7})", "x"})
    EXPECT_EQ(stamp(text, 1, 1, "files").error().code, Code::kProtocol) << text;
}

TEST(Stamp, EveryAcceptedMessageReadsBackHoweverLongItsEscapes) {
  const std::string message = "{\"x\":\"" + std::string(kMaxRecordBytes - 8, '\x7f') + "\"}";
  const auto line = stamp(message, 1, 1, std::string(64, 'n'));
  ASSERT_TRUE(line) << line.error().message;
  EXPECT_LE(line->size(), kMaxLineBytes);
  EXPECT_TRUE(parse_log_line(*line));
}

TEST(LogLine, NeedsItsStamp) {
  for (const auto* text : {"{}", R"({"seq":0,"time":"2026-08-26T07:38:15Z","source":"a"})",
                           R"({"seq":1,"time":"yesterday","source":"a"})",
                           R"({"seq":1,"time":"4052-08-26T07:38:15Z","source":"a"})",
                           R"({"seq":1,"time":"2026-08-26T07:38:15Z"})",
                           R"({"seq":-1,"time":"2026-08-26T07:38:15Z","source":"a"})"})
    EXPECT_FALSE(parse_log_line(text)) << text;
}

}  // namespace
}  // namespace sandbox::audit
