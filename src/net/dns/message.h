#pragma once
// DNS messages (RFC 1035, 2308, 6891, 8914, 9460) as the names gate needs them. Bytes in, values
// out; no socket, no clock.
//
// The three directions:
//   guest → us     parse_query()   strict: one question, class IN, at most one OPT, and nothing
//                                  behind it
//   us → upstream  build_query()   a fresh message; not a byte of the guest's own is passed on
//                                  except the name and type
//   upstream → us  parse_answer()  every record unpacked; compression pointers only backwards,
//                                  bounded work
//   us → guest     build_reply()   built anew from the parsed records, so nothing unread passes
//                                  through
//
// A name keeps two forms. `wire` has the letters as they came, uncompressed, root label included:
// it is echoed, because some clients compare it byte by byte (draft-vixie-dnsext-dns0x20). `host`
// is the folded HostName, absent where the name is no host name (NUL, a dot inside a label, a
// space, the root): such a name is refused, not rejected as malformed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/ip.h"
#include "base/result.h"
#include "policy/host_name.h"

namespace sandbox::dns {

enum class Type : uint16_t {
  kA = 1,
  kNs = 2,
  kCname = 5,
  kSoa = 6,
  kPtr = 12,
  kMx = 15,
  kTxt = 16,
  kAaaa = 28,
  kSrv = 33,
  kDname = 39,
  kOpt = 41,
  kDs = 43,
  kRrsig = 46,
  kNsec = 47,
  kNsec3 = 50,
  kSvcb = 64,
  kHttps = 65,
  kIxfr = 251,
  kAxfr = 252,
  kAny = 255,
};
std::string type_text(Type type);  // "A", "HTTPS", "TYPE65280"

enum class Rcode : uint16_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kBadVers = 16
};

// Extended DNS errors (RFC 8914).
enum class Ede : uint16_t {
  kBlocked = 15,
  kProhibited = 18,
  kNoReachableAuthority = 22,
  kNetworkError = 23
};

struct Name {
  Bytes wire;                            // uncompressed, ends with the root label; 1..255 bytes
  std::optional<policy::HostName> host;  // folded; absent where the name is no host name
  [[nodiscard]] std::string text()
      const;  // for people: dotted, odd bytes as \DDD, "." for the root
  [[nodiscard]] bool same_as(const Name& other) const;  // letter case does not count
  [[nodiscard]] bool is_root() const { return wire.front() == 0; }
  static Name of(const policy::HostName& host);
};

struct Question {
  Name name;
  Type type = Type::kA;
};

// What a client said besides its question; part of it goes upstream.
struct Flags {
  bool recursion_desired = true;
  bool checking_disabled = false;
  bool authentic_data = false;
  bool dnssec_ok = false;
  friend auto operator<=>(const Flags&, const Flags&) = default;
};

struct Query {
  uint16_t id = 0;
  Question question;
  Flags flags;
  bool has_opt = false;     // only then may the reply carry OPT, and so an extended error
  uint16_t udp_size = 512;  // what the client takes over UDP; 512 without OPT
};

// A message that is no proper query. One without a readable header, or one that is itself a reply,
// gets no answer at all.
struct BadQuery {
  bool answerable = false;
  uint16_t id = 0;
  Rcode rcode = Rcode::kFormErr;  // FORMERR, NOTIMP or BADVERS
  bool recursion_desired = false;
  const char* why = "";
};

std::variant<Query, BadQuery> parse_query(ByteView message);

// Reverse zones of space that is private or special (RFC 6303): their PTR queries are answered
// here, never sent out.
bool is_private_reverse(const policy::HostName& name);

// The query that goes upstream, with an OPT record of our own.
Bytes build_query(uint16_t id, const Question& question, const Flags& flags);

struct Record {
  Name owner;
  Type type = Type::kA;
  uint16_t rclass = 1;
  uint32_t ttl = 0;  // seconds; a set top bit is read as 0 (RFC 2181 section 8)
  Bytes rdata;       // names inside the types of RFC 1035 are uncompressed
};

struct AddressRecord {
  Ipv4 address;
  uint32_t ttl = 0;  // seconds: the smallest along the chain that leads here
  friend auto operator<=>(const AddressRecord&, const AddressRecord&) = default;
};

struct Answer {
  Rcode rcode = Rcode::kNoError;
  bool truncated = false;
  bool authentic_data = false;
  std::vector<Record> answers;
  std::vector<Record> authority;
  // Further names, in order, that the question's name is an alias of (CNAME). At most 16; a loop or
  // a longer chain is an error.
  std::vector<Name> chain;
  // A records owned by the end of the chain. Address records elsewhere in the message vouch for
  // nothing.
  std::vector<AddressRecord> addresses;
};

// Fails (kProtocol) for anything malformed and for an answer to another question.
Result<Answer> parse_answer(ByteView message, const Question& question);

// ---- replies to the guest. Each fits whatever transport it is cut for by fit(). ----

Bytes build_malformed(const BadQuery& bad);
// "There is no such name", with the reason: final for every client, where REFUSED makes some wait
// or try again (docs/decisions/042). It may be kept for a second only, since policy may change.
Bytes build_denied(const Query& query, Ede code, std::string_view reason);
// The same for a name with allowed names below it: no data of any type. Resolvers conclude from a
// name that is not there that nothing is below it (RFC 8020).
Bytes build_denied_parent(const Query& query, Ede code, std::string_view reason);
Bytes build_servfail(const Query& query, Ede code, std::string_view reason);
// NOERROR without records: AAAA of an allowed name.
Bytes build_no_data(const Query& query);
// NXDOMAIN with the SOA of the reverse zone, cacheable for an hour.
Bytes build_private_reverse(const Query& query);
Bytes build_addresses(const Query& query, const std::vector<AddressRecord>& addresses);

// The upstream's answer for the guest:
//   * A records only where `allowed` has the address and it is on the chain; no AAAA;
//   * HTTPS and SVCB without `ech`, `ipv4hint`, `ipv6hint`, and without h3 in `alpn` (RFC 9460):
//     the first hides the name the gate must read, the hints are addresses nobody vouched for, h3
//     is QUIC, which is refused;
//   * nothing of the additional section: its addresses are unvouched;
//   * AD cleared when anything was left out.
Bytes build_reply(const Query& query, const Answer& answer, const std::vector<Ipv4>& allowed);

// Size a UDP reply may have: what the client takes, within 512..1232, so that it is never
// fragmented.
size_t udp_limit(const Query& query);
// The reply itself where it fits; otherwise question and OPT alone with TC set, so that the client
// comes back over TCP.
Bytes fit(const Query& query, Bytes reply, size_t limit);

// DNS over TCP (RFC 7766): two length bytes before each message. Queries above kMaxQuery are none.
class TcpFramer {
 public:
  static constexpr size_t kMaxQuery = 4096;
  enum class Next { kNeedMore, kMessage, kBroken };
  void feed(ByteView bytes);
  Next next(Bytes& message);  // call until it says kNeedMore; kBroken: close the connection

 private:
  Bytes buffer_;
  size_t read_ = 0;
};
Bytes frame_for_tcp(ByteView message);

}  // namespace sandbox::dns
