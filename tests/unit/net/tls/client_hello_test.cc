#include "net/tls/client_hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "unit/net/tls/hello_builder.h"

namespace sandbox::tls {
namespace {

using namespace testing;  // NOLINT: the builder
using State = ClientHelloReader::State;

Bytes captured(const std::string& name) {
  std::ifstream in(std::string(SANDBOX_TEST_DATA "/../fuzz/corpus/client_hello/") + name,
                   std::ios::binary);
  return Bytes{std::istreambuf_iterator<char>(in), {}};
}

// ---- hellos of real clients (openssl 3.0, curl 7.88, Python 3.11, git, node) ----

struct Real {
  const char* file;
  std::optional<std::string> name;
};

class RealHello : public ::testing::TestWithParam<Real> {};

TEST_P(RealHello, is_read_whole) {
  const Bytes bytes = captured(GetParam().file);
  ASSERT_GT(bytes.size(), 100U);
  ClientHelloReader reader;
  ASSERT_EQ(reader.feed(bytes), State::kHello) << reader.reason();
  ASSERT_EQ(reader.hello().server_name.has_value(), GetParam().name.has_value());
  if (GetParam().name) {
    EXPECT_EQ(reader.hello().server_name->text(), *GetParam().name);
  }
  EXPECT_FALSE(reader.hello().ech);
}

TEST_P(RealHello, is_read_byte_by_byte_and_not_before_the_last) {
  const Bytes bytes = captured(GetParam().file);
  ClientHelloReader reader;
  for (size_t i = 0; i + 1 < bytes.size(); ++i)
    ASSERT_EQ(reader.feed(ByteView(bytes).subspan(i, 1)), State::kNeedMore) << i;
  EXPECT_EQ(reader.feed(ByteView(bytes).last(1)), State::kHello);
  EXPECT_EQ(reader.hello().server_name.has_value(), GetParam().name.has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Captured, RealHello,
    ::testing::Values(Real{"openssl", "www.example.org"}, Real{"openssl_tls12", "www.example.org"},
                      Real{"openssl_no_name", std::nullopt}, Real{"curl", "www.example.org"},
                      Real{"curl_by_address", std::nullopt}, Real{"python", "www.example.org"},
                      Real{"git", "www.example.org"}, Real{"node", "www.example.org"}),
    [](const auto& each) { return std::string(each.param.file); });

TEST(ClientHello, shows_the_protocols_offered) {
  ClientHelloReader reader;
  (void)reader.feed(captured("openssl"));
  EXPECT_THAT(reader.hello().alpn, ::testing::ElementsAre("h2", "http/1.1"));
}

// ---- whole handshakes ----

TEST(ClientHello, a_real_retry_is_watched_until_the_handshake_is_past) {
  const Bytes stream = captured("retry_stream");
  ClientHelloReader reader;
  const size_t first = 5U + (static_cast<size_t>(stream[3]) << 8 | stream[4]);
  ASSERT_EQ(reader.feed(ByteView(stream).first(first)), State::kHello);
  for (size_t at = first; at < stream.size(); ++at)
    ASSERT_NE(reader.feed(ByteView(stream).subspan(at, 1)), State::kUnreadable) << reader.reason();
  EXPECT_EQ(reader.state(), State::kDone);
  EXPECT_EQ(reader.hello().server_name->text(), "www.example.org");
}

TEST(ClientHello, a_real_tls12_handshake_ends_the_watch_at_the_key_exchange) {
  ClientHelloReader reader;
  EXPECT_EQ(reader.feed(captured("tls12_stream")), State::kDone) << reader.reason();
  EXPECT_EQ(reader.hello().server_name->text(), "www.example.org");
}

TEST(ClientHello, a_second_hello_must_show_the_same_name) {
  struct Case {
    const char* what;
    Bytes second;
    State state;
  };
  const Bytes ccs = record(20, Bytes{1});
  const Case cases[] = {
      {"the same", hello("a.example.org"), State::kHello},
      {"the same in capitals", hello("A.EXAMPLE.org"), State::kHello},
      {"behind a ChangeCipherSpec", joined({ccs, hello("a.example.org")}), State::kHello},
      {"another", hello("b.example.org"), State::kUnreadable},
      {"another behind a ChangeCipherSpec", joined({ccs, hello("b.example.org")}),
       State::kUnreadable},
      {"none", record(22, hello_message(std::vector<Extension>{})), State::kUnreadable},
      {"encrypted", record(22, hello_message(std::vector{server_name("a.example.org"), ech()})),
       State::kUnreadable},
      {"another in one-byte records",
       records(hello_message(std::vector{server_name("b.example.org")}), 2), State::kUnreadable},
      {"an alert", record(21, Bytes{1, 0}), State::kDone},
      {"application data", record(23, Bytes(40)), State::kDone},
      {"another handshake message", record(22, Bytes{16, 0, 0, 1, 0}), State::kDone},
  };
  for (const Case& each : cases) {
    ClientHelloReader reader;
    ASSERT_EQ(reader.feed(hello("a.example.org")), State::kHello);
    EXPECT_EQ(reader.feed(each.second), each.state) << each.what << ": " << reader.reason();
    EXPECT_EQ(reader.hello().server_name->text(), "a.example.org") << each.what;
  }
}

TEST(ClientHello, early_data_does_not_hide_a_second_hello) {
  const Bytes first =
      record(22, hello_message(std::vector{server_name("a.example.org"), early_data()}));
  ClientHelloReader reader;
  ASSERT_EQ(reader.feed(first), State::kHello);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(reader.feed(record(23, Bytes(1000))), State::kHello);
  EXPECT_EQ(reader.feed(hello("b.example.org")), State::kUnreadable);
}

TEST(ClientHello, after_the_retry_of_early_data_application_data_ends_the_watch) {
  ClientHelloReader reader;
  (void)reader.feed(
      record(22, hello_message(std::vector{server_name("a.example.org"), early_data()})));
  ASSERT_EQ(reader.feed(joined({record(23, Bytes(9)), hello("a.example.org")})), State::kHello);
  EXPECT_EQ(reader.feed(record(23, Bytes(9))), State::kDone);
}

// ---- fragments ----

TEST(ClientHello, is_reassembled_from_records_of_any_size) {
  const Bytes message = hello_message(std::vector{server_name("a.example.org")});
  for (size_t size = (message.size() + 63) / 64; size <= message.size(); ++size) {
    ClientHelloReader reader;
    ASSERT_EQ(reader.feed(records(message, size)), State::kHello) << size << reader.reason();
    EXPECT_EQ(reader.hello().server_name->text(), "a.example.org");
  }
}

TEST(ClientHello, in_more_than_64_records_is_unreadable) {
  const Bytes message = hello_message(std::vector{server_name("a.example.org")});
  ASSERT_GT(message.size(), 64U);
  ClientHelloReader reader;
  EXPECT_EQ(reader.feed(records(message, 1)), State::kUnreadable);
  EXPECT_EQ(reader.reason(), "a hello in more than 64 records");
}

// ---- what is no TLS ----

TEST(ClientHello, other_protocols_are_no_tls) {
  const std::pair<const char*, Bytes> cases[] = {
      {"HTTP", {'G', 'E', 'T', ' '}},
      {"SSH", {'S', 'S', 'H', '-'}},
      {"zero", {0, 0, 0, 8}},
      {"20 without a version behind it", {20, 0}},
      {"24 without a version behind it", {24, 'x'}},
      {"top bit set", {0x80, 0x50, 0x07}},
      {"top bit set, type 1, no version", {0x80, 0x50, 0x01, 0x09, 0x09}},
      {"25", {25}},
  };
  for (const auto& [what, bytes] : cases) {
    ClientHelloReader reader;
    EXPECT_EQ(reader.feed(bytes), State::kNotTls) << what;
  }
}

TEST(ClientHello, one_byte_that_could_be_either_is_not_decided) {
  for (const uint8_t byte : {uint8_t{22}, uint8_t{21}, uint8_t{0x80}}) {
    ClientHelloReader reader;
    EXPECT_EQ(reader.feed(Bytes{byte}), State::kNeedMore);
  }
}

// ---- what leaves doubt ----

struct Doubt {
  const char* what;
  Bytes bytes;
  const char* reason;
};

Bytes with(const std::vector<Extension>& extensions) {
  return record(22, hello_message(extensions));
}

Bytes with_length(Bytes bytes, size_t at, int delta) {
  bytes.at(at) = static_cast<uint8_t>(bytes.at(at) + delta);
  return bytes;
}

std::vector<Doubt> doubts() {
  using namespace std::string_literals;  // NOLINT
  const Bytes good = hello("a.example.org");
  Bytes trailing = hello_message(std::vector{server_name("a.example.org")});
  trailing.push_back(1);
  Bytes huge = {1, 1, 0, 0};
  return {
      {"SSLv2", {0x80, 0x2E, 0x01, 0x00, 0x02, 0x00}, "a hello in SSLv2 framing"},
      {"SSLv2 framing of TLS 1.0", {0x80, 0x2E, 0x01, 0x03, 0x01}, "a hello in SSLv2 framing"},
      {"a handshake of version 2", {22, 2, 0, 0, 1}, "a handshake record of an unknown version"},
      {"an alert before the hello", joined({record(21, Bytes{1, 0}), good}),
       "a record before the hello that is no handshake"},
      {"a ChangeCipherSpec before the hello", joined({record(20, Bytes{1}), good}),
       "a record before the hello that is no handshake"},
      {"application data before the hello", record(23, Bytes{1}),
       "a record before the hello that is no handshake"},
      {"a record of no bytes", joined({record(22, Bytes{}), good}), "a record of no bytes"},
      {"an alert within the hello", joined({record(22, Bytes{1, 0}), record(21, Bytes{1, 0})}),
       "another record within the hello"},
      {"a record of no bytes within the hello",
       joined({record(22, Bytes{1, 0}), record(22, Bytes{})}), "a record of no bytes"},
      {"a record of 20 KiB", {22, 3, 1, 0x50, 0}, "a record of more than 16 KiB"},
      {"a second record of version 2",
       joined({record(22, Bytes{1, 0}), record(22, Bytes{0}, 0x0201)}), "a malformed record"},
      {"another handshake first", record(22, Bytes{2, 0, 0, 0}),
       "a handshake that does not begin with a hello"},
      {"more than 32 KiB", record(22, huge), "a hello of more than 32 KiB"},
      {"bytes behind the hello", record(22, trailing), "more behind the hello in one record"},
      {"two server_name extensions",
       with({server_name("a.example.org"), server_name("b.example.org")}), "extension 0 twice"},
      {"any extension twice", with({{7, {}}, {7, {}}}), "extension 7 twice"},
      {"two names", with({server_names({{0, "a.example.org"}, {0, "b.example.org"}})}),
       "two names in server_name"},
      {"a name of another type", with({server_names({{1, "a.example.org"}})}),
       "server_name of type 1"},
      {"an empty name", with({server_name("")}), "an empty server_name"},
      {"no name in the list", with({server_names({})}), "malformed server_name"},
      {"NUL", with({server_name("a.example.org\0.evil.net"s)}), "server_name: character"},
      {"an IPv4 address", with({server_name("192.0.2.1")}), "server_name is an address"},
      {"an IPv4 address in short", with({server_name("127.1")}), "server_name is an address"},
      {"an IPv4 address in hex", with({server_name("0x7f000001")}), "server_name is an address"},
      {"an IPv6 address", with({server_name("2001:db8::1")}), "server_name is an address"},
      {"a bracketed address", with({server_name("[2001:db8::1]")}), "server_name is an address"},
      {"a dot at the end", with({server_name("a.example.org.")}), "server_name ends in a dot"},
      {"an empty label", with({server_name("a..org")}), "server_name: an empty label"},
      {"a space", with({server_name("a example.org")}), "server_name: character ' '"},
      {"UTF-8",
       with({server_name("b\xC3\xBC"
                         "cher.example")}),
       "server_name: character"},
      {"a wildcard", with({server_name("*.example.org")}), "server_name: character '*'"},
      {"a name list longer than it is", with({{0, {0, 9, 0, 0, 1, 'a'}}}), "malformed server_name"},
      {"a name list shorter than it is", with({{0, {0, 4, 0, 0, 1, 'a', 'b'}}}),
       "malformed server_name"},
      {"malformed ALPN", with({{16, {0, 3, 9, 'h', '2'}}}), "malformed ALPN"},
      {"extensions longer than they are", with_length(good, 5 + 4 + 2 + 32 + 1 + 4 + 2 + 1, 1),
       "malformed extensions"},
      {"extensions shorter than they are", with_length(good, 5 + 4 + 2 + 32 + 1 + 4 + 2 + 1, -1),
       "malformed extensions"},
      {"an odd list of cipher suites", with_length(good, 5 + 4 + 2 + 32 + 1 + 1, 1), "malformed"},
      {"a hello of SSL 2", with_length(good, 5 + 4, -1), "hello of a version before SSL 3"},
  };
}

class DoubtfulHello : public ::testing::TestWithParam<Doubt> {};

TEST_P(DoubtfulHello, is_unreadable) {
  ClientHelloReader reader;
  EXPECT_EQ(reader.feed(GetParam().bytes), State::kUnreadable);
  EXPECT_THAT(reader.reason(), ::testing::StartsWith(GetParam().reason));
}

TEST_P(DoubtfulHello, is_unreadable_byte_by_byte) {
  ClientHelloReader reader;
  for (size_t i = 0; i < GetParam().bytes.size(); ++i)
    (void)reader.feed(ByteView(GetParam().bytes).subspan(i, 1));
  EXPECT_EQ(reader.state(), State::kUnreadable);
}

INSTANTIATE_TEST_SUITE_P(Cases, DoubtfulHello, ::testing::ValuesIn(doubts()), [](const auto& each) {
  std::string name = each.param.what;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

TEST(ClientHello, without_extensions_shows_no_name) {
  ClientHelloReader reader;
  EXPECT_EQ(reader.feed(record(22, hello_message(std::nullopt))), State::kHello);
  EXPECT_FALSE(reader.hello().server_name);
}

TEST(ClientHello, encrypted_names_are_seen) {
  for (const uint16_t type : {uint16_t{0xFE0D}, uint16_t{0xFFCE}}) {
    ClientHelloReader reader;
    EXPECT_EQ(reader.feed(with({server_name("a.example.org"), {type, {0, 0, 1}}})), State::kHello);
    EXPECT_TRUE(reader.hello().ech);
  }
}

TEST(ClientHello, an_alert_record_says_access_denied) {
  EXPECT_EQ(alert(kAlertAccessDenied), (Bytes{21, 3, 3, 0, 2, 2, 49}));
}

}  // namespace
}  // namespace sandbox::tls
