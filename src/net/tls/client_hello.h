#pragma once
// Reads the server name a TLS client asks for, from the first bytes it sends.
//
// What it must withstand: the client is hostile and the server behind it may be any TLS library. So
// the question is never "is this a good hello" but "could some server read another name in these
// bytes than we do". Whatever leaves room for doubt is kUnreadable, and an unreadable hello is
// refused.
//
//   feed() every byte the client sends, in order, before it is passed on.
//
//   kNeedMore    hold everything: not decided yet
//   kNotTls      these bytes start no TLS connection; nothing further is looked at
//   kHello       a complete hello, see hello(); after it was allowed go on feeding: the state stays
//                kHello while a second hello may still come
//   kUnreadable  see reason(); refuse
//   kDone        the handshake has gone past the point where a hello in clear can come; stop
//                feeding
//
// A second hello follows a HelloRetryRequest (RFC 8446 section 4.1.4). Waiting for that request
// would mean reading the server too; it is not needed. After the first hello every record in clear
// is looked at: a further ClientHello must show the same name and no ECH (else kUnreadable),
// ChangeCipherSpec is passed over (middlebox compatibility), any other handshake message or alert
// ends the watch, application data ends it unless the hello offered early data, which a retry may
// follow.
//
// Limits: 32 KiB of handshake bytes and 64 records per hello. How long a client may take is the
// caller's business (10 s).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "policy/host_name.h"

namespace sandbox::tls {

struct Hello {
  std::optional<policy::HostName> server_name;  // absent: no server_name extension
  bool ech = false;         // encrypted_client_hello (0xfe0d) or its forerunner ESNI (0xffce)
  bool early_data = false;  // application data may follow before the server has answered
  std::vector<std::string> alpn;
  friend bool operator==(const Hello&, const Hello&) = default;
};

class ClientHelloReader {
 public:
  static constexpr size_t kMaxHandshake = 32 * 1024;
  static constexpr int kMaxRecords = 64;
  enum class State { kNeedMore, kNotTls, kHello, kUnreadable, kDone };

  State feed(ByteView bytes);
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const Hello& hello() const { return hello_; }          // from kHello on
  [[nodiscard]] const std::string& reason() const { return reason_; }  // with kUnreadable

 private:
  void step(uint8_t byte);
  size_t take_body(ByteView bytes);
  void start_record();
  void message_progress();
  void hello_complete();
  void unreadable(std::string why);

  State state_ = State::kNeedMore;
  Hello hello_;
  std::string reason_;
  bool first_done_ = false;  // the first hello is complete
  Bytes header_;             // of the record being read, up to 5 bytes
  uint8_t record_type_ = 0;
  size_t record_left_ = 0;
  int records_ = 0;
  Bytes message_;  // handshake bytes of the hello being read
};

// A fatal alert record in clear: what a refused client is sent. `description` per RFC 8446
// section 6.
Bytes alert(uint8_t description);
inline constexpr uint8_t kAlertAccessDenied = 49;
inline constexpr uint8_t kAlertUnrecognizedName = 112;

}  // namespace sandbox::tls
