#include "net/http/connect.h"

#include <gtest/gtest.h>

namespace sandbox::http {
namespace {

using State = ConnectReply::State;

struct Read {
  State state = State::kNeedMore;
  size_t consumed = 0;
  int status = 0;
  std::string text;
};

Read read(std::string_view bytes, size_t step) {
  ConnectReply reply;
  Read out;
  for (size_t at = 0; at < bytes.size() && out.state == State::kNeedMore; at += step) {
    const auto each = reply.feed(as_bytes(bytes.substr(at, step)));
    out.state = each.state;
    out.consumed += each.consumed;
  }
  out.status = reply.status();
  out.text = reply.text();
  return out;
}

TEST(ConnectRequest, NamesTheTargetTwiceAndTheCredentialsOnce) {
  EXPECT_EQ(connect_request(*Authority::parse("www.example.org:443"), ""),
            "CONNECT www.example.org:443 HTTP/1.1\r\nHost: www.example.org:443\r\n\r\n");
  EXPECT_EQ(connect_request(*Authority::parse("[2001:db8::1]:22"), "Basic eA=="),
            "CONNECT [2001:db8::1]:22 HTTP/1.1\r\nHost: [2001:db8::1]:22\r\n"
            "Proxy-Authorization: Basic eA==\r\n\r\n");
}

TEST(ConnectRequest, CredentialsAreThoseOfTheStandard) {
  EXPECT_EQ(basic_authorization("Aladdin", "open sesame"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(basic_authorization("", ""), "Basic Og==");
  EXPECT_EQ(basic_authorization("a", ""), "Basic YTo=");
  EXPECT_EQ(basic_authorization("a", "\xff"), "Basic YTr/");
}

TEST(ConnectReply, ReadsWhatProxiesAnswer) {
  struct {
    const char* bytes;
    State state;
    const char* text;
  } const cases[] = {
      {"HTTP/1.1 200 Connection established\r\n\r\n", State::kOpen, "200 Connection established"},
      {"HTTP/1.0 200 OK\r\nProxy-agent: x/1\r\nContent-Length: 5\r\n\r\n", State::kOpen, "200 OK"},
      {"HTTP/1.1 204\r\n\r\n", State::kOpen, "204"},
      {"HTTP/1.1 200 \r\n\r\n", State::kOpen, "200"},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", State::kOpen, "200 OK"},
      {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
       State::kRefused, "407 Proxy Authentication Required"},
      {"HTTP/1.1 403 Forbidden\r\n\r\n", State::kRefused, "403 Forbidden"},
      {"HTTP/1.1 302 Found\r\nLocation: http://login/\r\n\r\n", State::kRefused, "302 Found"},
      {"HTTP/1.1 503 a\x1b[31mb\r\n\r\n", State::kRefused, "503 a\\x1b[31mb"},
  };
  for (const auto& c : cases)
    for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}}) {
      const Read got = read(c.bytes, step);
      EXPECT_EQ(got.state, c.state) << c.bytes;
      EXPECT_EQ(got.text, c.text);
      EXPECT_EQ(got.consumed, std::string_view(c.bytes).size());
    }
}

TEST(ConnectReply, WhatFollowsBelongsToTheTunnel) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n";
  const Read got = read(head + "220 greeter ready\r\n", 4096);
  EXPECT_EQ(got.state, State::kOpen);
  EXPECT_EQ(got.consumed, head.size());
}

TEST(ConnectReply, EveryBeginningOfAnAnswerWaits) {
  const std::string whole = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(read(whole.substr(0, size), 4096).state, State::kNeedMore) << size;
}

TEST(ConnectReply, RefusesWhatIsNoAnswer) {
  for (const char* bytes : {"HTTP/2 200 OK\r\n",
                            "HTTP/1.1 20 OK\r\n",
                            "HTTP/1.1 2000 OK\r\n",
                            "HTTP/1.1 2x0 OK\r\n",
                            "HTTP/1.1  200 OK\r\n",
                            "HTTP/1.1 -12 OK\r\n",
                            "HTTP/1.1 099 OK\r\n",
                            "HTTP/1.1 600 no\r\n",
                            "HTTP/1.1 000 no\r\n",
                            "HTTP/1.x 200 OK\r\n",
                            "HTTP/1.1\t200 OK\r\n",
                            "HTTP/1.1 200OK\r\n",
                            "http/1.1 200 OK\r\n",
                            "SSH-2.0-OpenSSH\r\n",
                            "\r\n",
                            "\n",
                            "HTTP/1.1 200 OK\n",
                            "HTTP/1.1 200 OK\r\nA: b\n",
                            "HTTP/1.1 101 Switching\r\n\r\n",
                            "\x16\x03\x01\n"})
    EXPECT_EQ(read(bytes, 4096).state, State::kMalformed) << bytes;
}

TEST(ConnectReply, IsBoundedInOneLineInManyAndInManyAnswers) {
  const std::string start = "HTTP/1.1 200 OK\r\n";
  std::string lines = start, interim;
  while (lines.size() <= ConnectReply::kMaxHead) lines += "A: b\r\n";
  while (interim.size() <= ConnectReply::kMaxHead) interim += "HTTP/1.1 100 Continue\r\n\r\n";
  for (const std::string& bytes :
       {std::string(ConnectReply::kMaxHead + 1, 'a'),
        start + std::string(ConnectReply::kMaxHead, 'a'), lines, interim})
    for (const size_t step : {size_t{1000}, size_t{1} << 20}) {
      const Read got = read(bytes, step);
      EXPECT_EQ(got.state, State::kMalformed);
      EXPECT_LE(got.consumed, ConnectReply::kMaxHead);
    }
  const std::string just =
      start + "A: " + std::string(ConnectReply::kMaxHead - start.size() - 7, 'a') + "\r\n\r\n";
  EXPECT_EQ(read(just, 4096).state, State::kOpen);
  EXPECT_EQ(read("HTTP/1.1 403 " + std::string(1000, 'x') + "\r\n\r\n", 4096).text.size(), 68U);
}

}  // namespace
}  // namespace sandbox::http
