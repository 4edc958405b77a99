#include <gtest/gtest.h>
#include <time.h>

#include "audit/log.h"

namespace sandbox::audit {
namespace {

class LogText : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
  static std::string line(const Record& record) {
    LogEntry entry;
    entry.seq = 12;
    entry.time_ns = parse_rfc3339("2026-08-26T07:38:15Z");
    entry.source = "gateway";
    entry.record = record;
    return log_line(entry);
  }
};

Record deny(const std::string& proto, const std::string& reason) {
  Record record;
  record.proto = proto;
  record.verdict = Outcome::kDeny;
  record.reason = reason;
  return record;
}

Record at(Record record, const std::string& address, uint16_t port) {
  record.address = *IpAddress::parse(address);
  record.port = port;
  return record;
}

TEST_F(LogText, ADeniedNameReadsAsTheManualShows) {
  Record record = deny("dns", "no-allow-rule");
  record.names = {"www.example.org"};
  record.text = "www.example.org is not allowed";
  EXPECT_EQ(line(record), "2026-08-26 07:38:15  deny  dns www.example.org  no-allow-rule  #12");
  EXPECT_EQ(short_line(record), "deny dns www.example.org no-allow-rule");
}

TEST_F(LogText, ADialShowsAddressPortAndNames) {
  Record record = at(deny("tcp", "allow-rule"), "93.184.215.14", 443);
  record.verdict = Outcome::kAllow;
  record.names = {"a.example.org", "b.example.org"};
  EXPECT_EQ(line(record),
            "2026-08-26 07:38:15  allow  tcp 93.184.215.14:443  allow-rule  [a.example.org, "
            "b.example.org]  #12");
  EXPECT_EQ(short_line(record),
            "allow tcp 93.184.215.14:443 allow-rule a.example.org,b.example.org");
  EXPECT_EQ(line(at(deny("udp", "quic"), "2001:db8::1", 443)),
            "2026-08-26 07:38:15  deny  udp [2001:db8::1]:443  quic  #12");
  EXPECT_EQ(line(at(deny("icmp", "unresolved-address"), "192.0.2.1", 0)),
            "2026-08-26 07:38:15  deny  icmp 192.0.2.1  unresolved-address  #12");
}

TEST_F(LogText, ARuleThatDeniedIsNamed) {
  Record record = deny("dns", "deny-rule");
  record.names = {"ads.example.org"};
  record.rule = "*.ads.example.org";
  EXPECT_EQ(line(record),
            "2026-08-26 07:38:15  deny  dns ads.example.org  deny-rule *.ads.example.org  #12");
}

TEST_F(LogText, ANameOnTheStreamIsShownWithWhereItWent) {
  Record record = at(deny("tls", "sni-denied"), "93.184.215.14", 443);
  record.sni = "evil.net";
  record.names = {"a.example.org"};
  EXPECT_EQ(line(record),
            "2026-08-26 07:38:15  deny  tls evil.net at 93.184.215.14:443  sni-denied  "
            "[a.example.org]  #12");
}

TEST_F(LogText, RebindingSaysHowToAllow) {
  Record record = deny("dns", "rebinding");
  record.names = {"db.example.org"};
  record.text = "resolves to private 10.0.0.1; allow with db.example.org@10.0.0.1";
  EXPECT_EQ(line(record),
            "2026-08-26 07:38:15  deny  dns db.example.org  rebinding  resolves to private "
            "10.0.0.1; allow with "
            "db.example.org@10.0.0.1  #12");
}

TEST_F(LogText, CountsAndOtherKinds) {
  Record more = deny("dns", "no-allow-rule");
  more.names = {"x.net"};
  more.count = 12;
  EXPECT_EQ(line(more), "2026-08-26 07:38:15  deny  dns x.net  no-allow-rule  (12 more)  #12");
  Record summary = deny("dns", "no-allow-rule");
  summary.kind = Kind::kSummary;
  summary.count = 900;
  summary.destinations = {"a.net", "b.net"};
  EXPECT_EQ(
      line(summary),
      "2026-08-26 07:38:15  deny  dns 900 more in this second  no-allow-rule  [a.net, b.net]");
  Record closed = at(deny("tcp", ""), "192.0.2.1", 443);
  closed.kind = Kind::kClose;
  closed.traffic = Traffic{1536, 10};
  EXPECT_EQ(line(closed), "2026-08-26 07:38:15  close  tcp 192.0.2.1:443  1.5 KiB out, 10 B in");
  Record lost;
  lost.kind = Kind::kLost;
  lost.count = 7;
  lost.text = "the recorder did not keep up";
  EXPECT_EQ(line(lost), "2026-08-26 07:38:15  lost  7 records: the recorder did not keep up");
  Record end;
  end.kind = Kind::kEnd;
  EXPECT_EQ(line(end), "2026-08-26 07:38:15  end");
}

TEST_F(LogText, NoByteOfAGuestDrivesTheTerminal) {
  Record record = deny("http", "host-denied\x1b[2J");
  record.host = "\x1b]0;owned\x07";
  record.names = {"a\nb", "\xc2\x9b"};
  record.text = "\r";
  for (const std::string& text : {line(record), short_line(record)})
    for (const char c : text) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << text;
}

}  // namespace
}  // namespace sandbox::audit
