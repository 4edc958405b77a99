// The record layer: bytes to records to one handshake message, strictly as RFC 8446 section 5.1 has
// it.
//
// A record that is not handshake before the first hello is not proof that this is no TLS: OpenSSL,
// for one, passes over a warning alert and then reads a hello. So such a beginning is unreadable,
// not "no TLS".

#include "net/tls/client_hello.h"

#include <algorithm>

#include "net/tls/hello_body.h"

namespace sandbox::tls {

namespace {

constexpr uint8_t kChangeCipherSpec = 20;
constexpr uint8_t kAlert = 21;
constexpr uint8_t kHandshake = 22;
constexpr uint8_t kApplicationData = 23;
constexpr uint8_t kHeartbeat = 24;
constexpr uint8_t kClientHello = 1;
constexpr size_t kRecordHeader = 5;
constexpr size_t kMessageHeader = 4;
// Plaintext records; protected ones (application data before a second hello) may be 256 bytes
// larger, TLS 1.2's 2048.
constexpr size_t kMaxRecord = (1U << 14) + 2048;

bool is_record_type(uint8_t byte) {
  return byte >= kChangeCipherSpec && byte <= kHeartbeat;
}

// An SSLv2-framed hello: two length bytes with the top bit set, message type 1, a version.
enum class Match { kNo, kMaybe, kYes };
Match looks_like_sslv2(ByteView start) {
  if (start[0] < 0x80) return Match::kNo;
  if (start.size() < 3) return Match::kMaybe;
  if (start[2] != kClientHello) return Match::kNo;
  if (start.size() < 5) return Match::kMaybe;
  const bool version = (start[3] == 0 && start[4] == 2) || (start[3] == 3 && start[4] <= 4);
  return version ? Match::kYes : Match::kNo;
}

}  // namespace

void ClientHelloReader::unreadable(std::string why) {
  state_ = State::kUnreadable;
  reason_ = std::move(why);
}

ClientHelloReader::State ClientHelloReader::feed(ByteView bytes) {
  while (!bytes.empty() && (state_ == State::kNeedMore || state_ == State::kHello)) {
    if (header_.size() < kRecordHeader) {
      step(bytes.front());
      bytes = bytes.subspan(1);
    } else {
      bytes = bytes.subspan(take_body(bytes));
    }
  }
  return state_;
}

// One byte of a record header.
void ClientHelloReader::step(uint8_t byte) {
  header_.push_back(byte);
  const bool beginning = !first_done_ && records_ == 0;
  if (beginning && !is_record_type(header_[0])) {
    const Match match = looks_like_sslv2(header_);
    if (match == Match::kYes) unreadable("a hello in SSLv2 framing");
    if (match == Match::kNo) state_ = State::kNotTls;
    return;
  }
  // 20..24 also starts other protocols; with a 3 behind it is a record, and 22 is taken at its
  // word.
  if (beginning && header_.size() == 2 && byte != 3) {
    if (header_[0] != kHandshake) {
      state_ = State::kNotTls;
    } else {
      unreadable("a handshake record of an unknown version");
    }
    return;
  }
  if (header_.size() == kRecordHeader) start_record();
}

void ClientHelloReader::start_record() {
  record_type_ = header_[0];
  record_left_ = static_cast<size_t>(header_[3]) << 8 | header_[4];
  if (header_[1] != 3 || !is_record_type(record_type_)) return unreadable("a malformed record");
  if (record_left_ > kMaxRecord) return unreadable("a record of more than 16 KiB");
  if (record_left_ == 0) return unreadable("a record of no bytes");
  // Application data is skipped uncounted: it comes only before a second hello, and as early data
  // has no bound of ours.
  if (record_type_ != kApplicationData && ++records_ > kMaxRecords)
    return unreadable("a hello in more than 64 records");
  if (!message_.empty() && record_type_ != kHandshake)
    return unreadable("another record within the hello");
  if (record_type_ == kHandshake) return;
  if (!first_done_) return unreadable("a record before the hello that is no handshake");
  const bool skipped =
      record_type_ == kChangeCipherSpec || (record_type_ == kApplicationData && hello_.early_data);
  if (!skipped) state_ = State::kDone;
}

// Bytes of the record at hand; returns how many were taken.
size_t ClientHelloReader::take_body(ByteView bytes) {
  const size_t count = std::min(bytes.size(), record_left_);
  record_left_ -= count;
  if (record_type_ == kHandshake) {
    const ByteView part = bytes.first(count);
    message_.insert(message_.end(), part.begin(), part.end());
    message_progress();
  }
  if (record_left_ == 0) header_.clear();
  return count;
}

void ClientHelloReader::message_progress() {
  if (message_[0] != kClientHello) {
    if (!first_done_) return unreadable("a handshake that does not begin with a hello");
    state_ = State::kDone;  // the key exchange of TLS 1.2: the hello was answered
    return;
  }
  if (message_.size() < kMessageHeader) return;
  const size_t length =
      static_cast<size_t>(message_[1]) << 16 | static_cast<size_t>(message_[2]) << 8 | message_[3];
  if (kMessageHeader + length > kMaxHandshake) return unreadable("a hello of more than 32 KiB");
  if (message_.size() < kMessageHeader + length) return;
  // A hello is answered before anything else may be said, so nothing shares its record.
  if (message_.size() > kMessageHeader + length || record_left_ != 0)
    return unreadable("more behind the hello in one record");
  hello_complete();
}

void ClientHelloReader::hello_complete() {
  auto parsed = parse_hello_body(ByteView(message_).subspan(kMessageHeader));
  message_.clear();
  records_ = 0;
  if (!parsed) return unreadable(parsed.error().message);
  if (!first_done_) {
    hello_ = std::move(*parsed);
    first_done_ = true;
    state_ = State::kHello;
    return;
  }
  if (parsed->server_name != hello_.server_name)
    return unreadable("the second hello names another server");
  if (parsed->ech && !hello_.ech) return unreadable("the second hello is encrypted");
  hello_.early_data = false;  // a retry ends early data (RFC 8446 section 4.2.10)
}

Bytes alert(uint8_t description) {
  constexpr uint8_t kFatal = 2;
  return {kAlert, 3, 3, 0, 2, kFatal, description};
}

}  // namespace sandbox::tls
