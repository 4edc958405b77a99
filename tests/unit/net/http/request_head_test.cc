#include "net/http/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sandbox::http {
namespace {

using Event = RequestReader::Event;
using namespace std::string_literals;  // NOLINT: bodies with NUL

// What a connection's bytes turned into: one word per event, bodies with their lengths, runs
// joined.
std::string told(RequestReader& reader, std::string_view bytes, size_t step) {
  std::string out;
  size_t body = 0;
  const auto say = [&](const std::string& word) {
    if (body != 0) out += "body:" + std::to_string(body) + " ";
    body = 0;
    if (!word.empty()) out += word + " ";
  };
  for (size_t at = 0; at < bytes.size(); at += step) {
    ByteView piece = as_bytes(bytes.substr(at, step));
    while (!piece.empty()) {
      const RequestReader::Step each = reader.feed(piece);
      piece = piece.subspan(each.consumed);
      if (each.event == Event::kBody) body += each.consumed;
      if (each.event == Event::kNeedMore) break;
      if (each.event == Event::kRequest)
        say(reader.request().host ? reader.request().host->text() : "-");
      if (each.event == Event::kNotHttp) return say("no"), out;
      if (each.event == Event::kMalformed) return say("bad"), out;
      if (each.event == Event::kOpaque) return say("opaque"), out;
      if (each.event == Event::kAwait101) return say("await"), out;
    }
  }
  say("");
  return out;
}

std::string told(std::string_view bytes, size_t step = 1U << 20) {
  RequestReader reader;
  return told(reader, bytes, step);
}

std::string reason(std::string_view bytes) {
  RequestReader reader;
  (void)told(reader, bytes, 1U << 20);
  return reader.reason();
}

std::string get(const std::string& fields) {
  return "GET / HTTP/1.1\r\n" + fields + "\r\n";
}

struct Case {
  const char* what;
  std::string bytes;
  std::string told;
};

void PrintTo(const Case& each, std::ostream* out) {
  *out << each.what;
}

class Connection : public testing::TestWithParam<Case> {};

TEST_P(Connection, is_followed) {
  EXPECT_EQ(told(GetParam().bytes), GetParam().told);
}
TEST_P(Connection, is_followed_byte_by_byte) {
  const std::string& whole = GetParam().told;
  const std::string piecewise = told(GetParam().bytes, 1);
  // The beginning of a malformed line of a body has passed by the time its end is seen.
  if (whole.ends_with("bad ")) {
    EXPECT_THAT(piecewise, testing::EndsWith("bad "));
  } else {
    EXPECT_EQ(piecewise, whole);
  }
}

std::string name_of(const testing::TestParamInfo<Case>& each) {
  std::string name = each.param.what;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

const Case kGood[] = {
    {"a request", get("Host: a.example.org\r\n"), "a.example.org "},
    {"a port", get("Host: a.example.org:8080\r\n"), "a.example.org:8080 "},
    {"an empty port", get("Host: a.example.org:\r\n"), "a.example.org "},
    {"capitals and a dot at the end", get("hOST:A.Example.ORG.\r\n"), "a.example.org "},
    {"an address", get("Host: 192.0.2.1\r\n"), "192.0.2.1 "},
    {"an IPv6 address", get("Host: [2001:db8::1]:80\r\n"), "[2001:db8::1]:80 "},
    {"HTTP 1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "- "},
    {"HTTP 1.0 with Host", "GET / HTTP/1.0\r\nHost: a.b\r\n\r\n", "a.b "},
    {"pipelined", get("Host: a.b\r\n") + get("Host: c.d\r\n") + get("Host: e.f\r\n"),
     "a.b c.d e.f "},
    {"a body by length",
     "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 5\r\n\r\nGET /" + get("Host: c.d\r\n"),
     "a.b body:5 c.d "},
    {"a body of nothing",
     "POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 0\r\n\r\n" + get("Host: c.d\r\n"),
     "a.b c.d "},
    {"chunks",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n"
     "5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n" +
         get("Host: c.d\r\n"),
     "a.b body:34 c.d "},
    {"trailers",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"
     "1\r\nx\r\n0\r\nDigest: abc\r\n\r\n" +
         get("Host: c.d\r\n"),
     "a.b body:24 c.d "},
    {"Expect", "PUT / HTTP/1.1\r\nHost: a.b\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
     "a.b body:2 "},
    {"absolute form", "GET http://a.b/x HTTP/1.1\r\nHost: a.b\r\n\r\n", "a.b "},
    {"absolute form, the default port spelled out",
     "GET http://a.b:80/ HTTP/1.1\r\nHost: A.B\r\n\r\n", "a.b:80 "},
    {"absolute form of HTTP 1.0", "GET http://a.b/ HTTP/1.0\r\n\r\n", "a.b "},
    {"absolute form without a path", "GET http://a.b?q HTTP/1.1\r\nHost: a.b\r\n\r\n", "a.b "},
    {"OPTIONS of the server", "OPTIONS * HTTP/1.1\r\nHost: a.b\r\n\r\n", "a.b "},
    {"CONNECT", "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\nxyz", "a.b:443 opaque "},
    {"CONNECT, Host without port", "CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n", "a.b:443 "},
    {"an unknown method", "PROPFIND /x HTTP/1.1\r\nHost: a.b\r\n\r\n", "a.b "},
    {"bytes above ASCII in a value", get("Host: a.b\r\nX: \xC3\xA9\r\n"), "a.b "},
    {"websocket waits for the answer",
     get("Host: a.b\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n") + "early", "a.b await "},
};
INSTANTIATE_TEST_SUITE_P(Good, Connection, testing::ValuesIn(kGood), name_of);

const Case kBad[] = {
    {"no Host", "GET / HTTP/1.1\r\n\r\n", "bad "},
    {"two Hosts", get("Host: a.b\r\nHost: a.b\r\n"), "bad "},
    {"an empty Host", get("Host:\r\n"), "bad "},
    {"two names in Host", get("Host: a.b, c.d\r\n"), "bad "},
    {"userinfo in Host", get("Host: x@a.b\r\n"), "bad "},
    {"a path in Host", get("Host: a.b/x\r\n"), "bad "},
    {"port 0", get("Host: a.b:0\r\n"), "bad "},
    {"port 65536", get("Host: a.b:65536\r\n"), "bad "},
    {"a numeric spelling of an address", get("Host: 127.1\r\n"), "bad "},
    {"white space before the colon", get("Host : a.b\r\n"), "bad "},
    {"white space before a field", get("Host: a.b\r\n X: y\r\n"), "bad "},
    {"a folded field", get("X: y\r\n\tHost: c.d\r\nHost: a.b\r\n"), "bad "},
    {"a field without colon", get("Host: a.b\r\nnonsense\r\n"), "bad "},
    {"a field without name", get("Host: a.b\r\n: x\r\n"), "bad "},
    {"NUL in a value", get("Host: a.b\r\nX: a\0b\r\n"s), "bad "},
    {"bare LF after the request line", "GET / HTTP/1.1\nHost: a.b\r\n\r\n", "bad "},
    {"bare LF after a field", "GET / HTTP/1.1\r\nHost: a.b\nX: y\r\n\r\n", "bad "},
    {"bare LF as the empty line", "GET / HTTP/1.1\r\nHost: a.b\r\n\n", "bad "},
    {"bare CR in a field", get("X: y\rHost: c.d\r\nHost: a.b\r\n"), "bad "},
    {"bare CR before the line end", get("Host: a.b\r\r\n"), "bad "},
    {"bare CR instead of line ends", "GET / HTTP/1.1\rHost: a.b\r\r\n", "bad "},
    {"an empty line before the request", "\r\nGET / HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"a space before the request", " GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"an empty line between requests", get("Host: a.b\r\n") + "\r\n" + get("Host: c.d\r\n"),
     "a.b bad "},
    {"two spaces in the request line", "GET  / HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"tabs in the request line", "GET\t/\tHTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"vertical tabs in the request line", "GET\v/\vHTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"NUL behind the method", "GET\0/ HTTP/1.1\r\nHost: a.b\r\n\r\n"s, "bad "},
    {"a lower case method", "get / http/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"HTTP 0.9", "GET /\r\n", "bad "},
    {"HTTP 0.9 with white space in the target", "GET http://a.b/ x\r\n", "bad "},
    {"HTTP 0.9 with the version of another protocol", "GET /x y SIP/2.0\r\n", "bad "},
    {"CONNECT without a version", "CONNECT a.b:443\r\n", "bad "},
    {"HTTP 1.2", "GET / HTTP/1.2\r\nHost: a.b\r\n\r\n", "bad "},
    {"HTTP 2 with prior knowledge", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad "},
    {"an upgrade to h2c", get("Host: a.b\r\nUpgrade: h2c\r\n"), "bad "},
    {"an upgrade to several", get("Host: a.b\r\nUpgrade: websocket, h2c\r\n"), "bad "},
    {"an upgrade twice", get("Host: a.b\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n"), "bad "},
    {"a later upgrade", get("Host: a.b\r\n") + get("Host: a.b\r\nUpgrade: websocket\r\n"),
     "a.b bad "},
    {"an upgrade with a body", get("Host: a.b\r\nUpgrade: websocket\r\nContent-Length: 2\r\n"),
     "bad "},
    {"two lengths", get("Host: a.b\r\nContent-Length: 1\r\nContent-Length: 1\r\n"), "bad "},
    {"two lengths in one field", get("Host: a.b\r\nContent-Length: 1, 1\r\n"), "bad "},
    {"a length with a sign", get("Host: a.b\r\nContent-Length: +1\r\n"), "bad "},
    {"an absurd length", get("Host: a.b\r\nContent-Length: 99999999999999999999\r\n"), "bad "},
    {"length and coding", get("Host: a.b\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
     "bad "},
    {"two codings",
     get("Host: a.b\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "bad "},
    {"chunked twice", get("Host: a.b\r\nTransfer-Encoding: chunked, chunked\r\n"), "bad "},
    {"chunked not last", get("Host: a.b\r\nTransfer-Encoding: chunked, gzip\r\n"), "bad "},
    {"identity", get("Host: a.b\r\nTransfer-Encoding: identity\r\n"), "bad "},
    {"an odd coding", get("Host: a.b\r\nTransfer-Encoding: xchunked\r\n"), "bad "},
    {"chunked in HTTP 1.0", "POST / HTTP/1.0\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n",
     "bad "},
    {"a target that is neither path nor URL", "GET a.b HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"a star without OPTIONS", "GET * HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"another scheme", "GET ftp://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"userinfo in the target", "GET http://x@a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"Host and target disagree", "GET http://a.b/ HTTP/1.1\r\nHost: c.d\r\n\r\n", "bad "},
    {"Host and target disagree on the port", "GET http://a.b/ HTTP/1.1\r\nHost: a.b:81\r\n\r\n",
     "bad "},
    {"CONNECT without port", "CONNECT a.b HTTP/1.1\r\nHost: a.b\r\n\r\n", "bad "},
    {"CONNECT with a body", "CONNECT a.b:1 HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1\r\n\r\n",
     "bad "},
    {"CONNECT with another Host", "CONNECT a.b:1 HTTP/1.1\r\nHost: c.d\r\n\r\n", "bad "},
    {"a chunk size that is none",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "a.b bad "},
    {"a chunk size with 0x",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n", "a.b bad "},
    {"a chunk size of 16 digits",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
     "a.b bad "},
    {"a chunk size line with bare LF",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n", "a.b bad "},
    {"a trailer that is no field",
     "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGET / HTTP/1.1\r\n",
     "a.b body:3 bad "},
    {"another protocol behind a request", get("Host: a.b\r\n") + "SSH-2.0-x\r\n", "a.b bad "},
};
INSTANTIATE_TEST_SUITE_P(Bad, Connection, testing::ValuesIn(kBad), name_of);

const Case kOther[] = {
    {"SSH", "SSH-2.0-OpenSSH_9.2\r\n", "no "},
    {"SMTP", "EHLO mail.example.org\r\n", "no "},
    {"FTP", "USER anonymous\r\n", "no "},
    {"redis", "*1\r\n$4\r\nPING\r\n", "no "},
    {"redis inline GET", "GET key\r\n", "no "},
    {"git", "0033git-upload-pack /project.git\0host=myserver\0"s, "no "},
    {"PostgreSQL", "\0\0\0\x08\x04\xD2\x16\x2F"s, "no "},
    {"AMQP", "AMQP\0\0\x09\x01"s, "no "},
    {"MQTT", "\x10\x0C\0\x04MQTT"s, "no "},
    {"STOMP", "CONNECT\naccept-version:1.2\n", "no "},
    {"NATS", "CONNECT {\"verbose\":false,\"lang\":\"go\"}\r\n", "no "},
    {"RTSP", "OPTIONS rtsp://a.b/x RTSP/1.0\r\n", "no "},
    {"a word without an end", "PING", ""},
};
INSTANTIATE_TEST_SUITE_P(Other, Connection, testing::ValuesIn(kOther), name_of);

TEST(RequestReader, reads_a_bad_chunk_end_as_malformed) {
  EXPECT_EQ(
      reason("POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"),
      "a chunk longer than its size");
}

TEST(RequestReader, bounds_a_head) {
  const std::string long_field = get("Host: a.b\r\nX: " + std::string(70000, 'x') + "\r\n");
  EXPECT_EQ(told(long_field), "bad ");
  EXPECT_EQ(reason(long_field), "a head of more than 64 KiB");
  EXPECT_EQ(told("GET " + std::string(70000, '/')), "bad ");
}

TEST(RequestReader, bounds_trailers_and_chunk_extensions) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(told(head + "0;" + std::string(5000, 'x') + "\r\n"), testing::EndsWith("bad "));
  std::string trailers;
  for (int i = 0; i < 10000; ++i) trailers += "X: y\r\n";
  EXPECT_EQ(told(head + "0\r\n" + trailers + "\r\n" + trailers), "a.b body:60005 bad ");
  EXPECT_THAT(told(head + "0\r\n" + trailers + trailers), testing::EndsWith("bad "));
}

TEST(RequestReader, passes_a_long_body_without_keeping_it) {
  RequestReader reader;
  (void)reader.feed(
      as_bytes("PUT / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 100000000000\r\n\r\n"));
  const Bytes piece(1U << 20);
  for (int i = 0; i < 100; ++i) {
    const RequestReader::Step step = reader.feed(piece);
    ASSERT_EQ(step.event, Event::kBody);
    ASSERT_EQ(step.consumed, piece.size());
  }
  EXPECT_FALSE(reader.between_requests());
}

TEST(RequestReader, knows_when_it_is_between_requests) {
  RequestReader reader;
  EXPECT_TRUE(reader.between_requests());
  (void)reader.feed(as_bytes("GET / HT"));
  EXPECT_FALSE(reader.between_requests());
  (void)reader.feed(as_bytes("TP/1.1\r\nHost: a.b\r\n\r\n"));
  EXPECT_TRUE(reader.between_requests());
  EXPECT_EQ(reader.requests(), 1U);
}

TEST(RequestReader, goes_on_as_http_when_an_upgrade_is_declined) {
  RequestReader reader;
  EXPECT_EQ(told(reader, get("Host: a.b\r\nUpgrade: websocket\r\n") + "x", 9999), "a.b await ");
  reader.upgraded(false);
  EXPECT_EQ(told(reader, get("Host: c.d\r\n"), 9999), "c.d ");
}

TEST(RequestReader, is_opaque_once_an_upgrade_is_accepted) {
  RequestReader reader;
  EXPECT_EQ(told(reader, get("Host: a.b\r\nUpgrade: websocket\r\n") + "x", 9999), "a.b await ");
  reader.upgraded(true);
  EXPECT_EQ(told(reader, "anything", 9999), "opaque ");
}

TEST(UpgradeReply, is_read_from_the_first_final_answer) {
  using State = UpgradeReply::State;
  const std::string accepted = "HTTP/1.1 101 X\r\n\r\n";
  const std::string filler(RequestReader::kMaxHead - accepted.size(), 'x');
  const auto padded = [&](const std::string& more) {
    return "HTTP/1.1 101 X" + filler + more + "\r\n\r\n";
  };
  const std::pair<std::string, State> cases[] = {
      {padded(""), State::kAccepted},
      {padded("x"), State::kDeclined},  // in one piece, too
      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", State::kAccepted},
      {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101 X\r\n\r\n", State::kAccepted},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", State::kDeclined},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", State::kDeclined},
      {"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n", State::kNeedMore},
      {"HTTP/1.1 1", State::kNeedMore},
      {"", State::kNeedMore},
      {"SSH-2.0", State::kDeclined},
  };
  for (const auto& [bytes, state] : cases) {
    UpgradeReply whole;
    EXPECT_EQ(whole.feed(as_bytes(bytes)), state) << bytes;
    UpgradeReply piecewise;
    State last = State::kNeedMore;
    for (const char c : bytes) last = piecewise.feed(as_bytes(std::string_view(&c, 1)));
    EXPECT_EQ(last, state) << bytes;
  }
}

TEST(Response, of_a_denial_names_the_rule_and_closes) {
  const std::string text(as_text(forbidden("denied by rule 'x'")));
  EXPECT_THAT(text, testing::StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("\r\nContent-Length: 19\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_THAT(text, testing::EndsWith("\r\n\r\ndenied by rule 'x'\n"));
  EXPECT_THAT(std::string(as_text(forbidden("x", true))), testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(std::string(as_text(bad_request("x"))), testing::StartsWith("HTTP/1.1 400 "));
}

}  // namespace
}  // namespace sandbox::http
