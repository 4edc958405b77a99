#pragma once
// Inside of the DNS library: names and records between bytes and values.

#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "net/dns/message.h"

namespace sandbox::dns {

inline constexpr uint16_t kClassIn = 1;
inline constexpr size_t kHeaderSize = 12;
// What we say we take and never exceed over UDP: fits the smallest IPv6 path unfragmented (DNS flag
// day 2020).
inline constexpr uint16_t kOurUdpSize = 1232;

// Bits of the second header word.
inline constexpr uint16_t kQr = 0x8000;
inline constexpr uint16_t kOpcodeMask = 0x7800;
inline constexpr uint16_t kTc = 0x0200;
inline constexpr uint16_t kRd = 0x0100;
inline constexpr uint16_t kRa = 0x0080;
inline constexpr uint16_t kAd = 0x0020;
inline constexpr uint16_t kCd = 0x0010;
inline constexpr uint16_t kRcodeMask = 0x000F;
// Of the flags in an OPT record's TTL.
inline constexpr uint32_t kOptDo = 0x8000;

struct Header {
  uint16_t id, flags, questions, answers, authority, additional;
};
Header read_header(ByteReader& reader);

enum class Pointers { kAllowed, kForbidden };
// Reads a name at the reader's position within `message`. Each pointer must lead before the place
// the name was read from so far, and a name is at most 255 bytes, so the work is bounded. Fails the
// reader and returns an empty name otherwise.
Name read_name(ByteReader& reader, ByteView message, Pointers pointers);

// Rdata of a type that holds names: `before` bytes, `names` names, the rest.
struct RdataShape {
  size_t before;
  int names;
};
std::optional<RdataShape> rdata_shape(Type type);

// Removes what the gate forbids from the rdata of HTTPS or SVCB (see build_reply). nullopt: the
// record must go as a whole.
std::optional<Bytes> without_forbidden_parameters(ByteView rdata);

// Writes a message, compressing owner names and those rdata names that RFC 1035 lets one compress.
class MessageWriter {
 public:
  MessageWriter(uint16_t id, uint16_t flags);
  void question(const Question& question);
  void answer(const Record& record);
  void authority(const Record& record);
  void opt(uint16_t udp_size, uint16_t extended_rcode, bool dnssec_ok, ByteView options);
  Bytes take() { return out_.take(); }

 private:
  void name(ByteView wire);
  void record(const Record& record);
  void count(size_t at);

  ByteWriter out_;
  std::map<std::string, uint16_t> offsets_;  // folded wire form of each suffix written so far
};

}  // namespace sandbox::dns
