#include "net/ipv4.h"

#include <algorithm>
#include <cstring>

namespace sandbox::net {

namespace {

constexpr uint16_t kDontFragment = 0x4000;
constexpr uint16_t kMoreFragments = 0x2000;
constexpr size_t kMaxPayload = 65535 - kIpv4Header;

void put16(uint8_t* out, uint16_t value) {
  out[0] = static_cast<uint8_t>(value >> 8);
  out[1] = static_cast<uint8_t>(value);
}

void put32(uint8_t* out, uint32_t value) {
  put16(out, static_cast<uint16_t>(value >> 16));
  put16(out + 2, static_cast<uint16_t>(value));
}

void write_header(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                  size_t payload_size, uint16_t id, uint16_t fragment_field) {
  out[0] = 0x45;  // version 4, five words
  out[1] = 0;
  put16(out + 2, static_cast<uint16_t>(kIpv4Header + payload_size));
  put16(out + 4, id);
  put16(out + 6, fragment_field);
  out[8] = 64;
  out[9] = protocol;
  put16(out + 10, 0);
  put32(out + 12, source.value);
  put32(out + 16, destination.value);
  put16(out + 10, checksum_finish(checksum_add(0, {out, kIpv4Header})));
}

}  // namespace

// Sums in the machine's byte order, four bytes at a time: the ones' complement sum does not care
// (RFC 1071 section 2), as long as the result is swapped once at the end. 64 bits take 2^32 such
// words before they overflow.
uint64_t checksum_add(uint64_t sum, ByteView bytes) {
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  uint64_t a = 0;
  uint64_t b = 0;
  for (; left >= 16; at += 16, left -= 16) {
    uint32_t words[4];
    std::memcpy(words, at, sizeof words);
    a += uint64_t{words[0]} + words[1];
    b += uint64_t{words[2]} + words[3];
  }
  sum += a + b;
  for (; left >= 4; at += 4, left -= 4) {
    uint32_t word = 0;
    std::memcpy(&word, at, sizeof word);
    sum += word;
  }
  uint32_t tail = 0;  // one to three bytes, padded with zeros behind
  if (left > 0) std::memcpy(&tail, at, left);
  return sum + tail;
}

uint16_t checksum_finish(uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  const auto folded = static_cast<uint16_t>(~sum);
  uint8_t bytes[2];
  std::memcpy(bytes, &folded, sizeof bytes);
  return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]);
}

uint64_t pseudo_header_sum(Ipv4 source, Ipv4 destination, uint8_t protocol, size_t length) {
  uint8_t header[12];
  put32(header, source.value);
  put32(header + 4, destination.value);
  header[8] = 0;
  header[9] = protocol;
  put16(header + 10, static_cast<uint16_t>(length));
  return checksum_add(0, header);
}

Ipv4Error parse_ipv4(ByteView bytes, Ipv4Packet& out) {
  if (bytes.size() < kIpv4Header) return Ipv4Error::kTruncated;
  ByteReader in(bytes);
  const uint8_t version_and_size = in.u8();
  if (version_and_size >> 4 != 4) return Ipv4Error::kVersion;
  const size_t header = size_t{4} * (version_and_size & 0x0F);
  if (header < kIpv4Header) return Ipv4Error::kLength;
  if (header > kIpv4Header) return Ipv4Error::kOptions;
  in.skip(1);  // service class
  const size_t total = in.be16();
  if (total < kIpv4Header || total > bytes.size()) return Ipv4Error::kLength;
  out.id = in.be16();
  const uint16_t fragment = in.be16();
  out.ttl = in.u8();
  out.protocol = in.u8();
  in.skip(2);  // checksum, verified below over the whole header
  out.source = {in.be32()};
  out.destination = {in.be32()};
  if (checksum_finish(checksum_add(0, bytes.first(kIpv4Header))) != 0) return Ipv4Error::kChecksum;
  if (out.ttl == 0) return Ipv4Error::kTtl;
  out.more_fragments = (fragment & kMoreFragments) != 0;
  out.fragment_offset = static_cast<uint16_t>((fragment & 0x1FFF) * 8);
  out.whole = bytes.first(total);
  out.payload = out.whole.subspan(kIpv4Header);
  return Ipv4Error::kNone;
}

void write_ipv4(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                size_t payload_size) {
  write_header(out, source, destination, protocol, payload_size, 0, kDontFragment);
}

void write_ipv4_fragment(uint8_t* out, Ipv4 source, Ipv4 destination, uint8_t protocol,
                         size_t payload_size, const FragmentPlace& place) {
  const auto field = static_cast<uint16_t>(place.offset / 8 | (place.more ? kMoreFragments : 0));
  write_header(out, source, destination, protocol, payload_size, place.id, field);
}

Reassembly::Slot* Reassembly::find(const Ipv4Packet& fragment, Instant now) {
  Slot* free_slot = nullptr;
  for (Slot& slot : slots_) {
    if (slot.used && slot.deadline <= now) slot = Slot{};
    if (!slot.used) {
      free_slot = &slot;
      continue;
    }
    if (slot.id == fragment.id && slot.protocol == fragment.protocol &&
        slot.destination == fragment.destination)
      return &slot;
  }
  if (free_slot == nullptr) return nullptr;
  free_slot->used = true;
  free_slot->destination = fragment.destination;
  free_slot->protocol = fragment.protocol;
  free_slot->id = fragment.id;
  free_slot->deadline = now + kTimeout;
  return free_slot;
}

// False when the range overlaps one that is there. Neighbours are joined, so a whole datagram ends
// as one range.
bool Reassembly::insert(Slot& slot, Range range) {
  auto next =
      std::ranges::find_if(slot.ranges, [&](const Range& r) { return r.end > range.begin; });
  if (next != slot.ranges.end() && next->begin < range.end) return false;
  const bool joins_next = next != slot.ranges.end() && next->begin == range.end;
  const bool joins_previous = next != slot.ranges.begin() && std::prev(next)->end == range.begin;
  if (joins_previous && joins_next) {
    std::prev(next)->end = next->end;
    slot.ranges.erase(next);
  } else if (joins_previous) {
    std::prev(next)->end = range.end;
  } else if (joins_next) {
    next->begin = range.begin;
  } else {
    slot.ranges.insert(next, range);
  }
  return true;
}

Reassembly::Result Reassembly::add(const Ipv4Packet& fragment, Instant now) {
  const Range range{fragment.fragment_offset, fragment.fragment_offset + fragment.payload.size()};
  const bool aligned = !fragment.more_fragments || fragment.payload.size() % 8 == 0;
  if (fragment.payload.empty() || !aligned || range.end > kMaxPayload)
    return {Outcome::kInvalid, {}};
  Slot* slot = find(fragment, now);
  if (slot == nullptr) return {Outcome::kFull, {}};
  if (slot->poisoned) return {Outcome::kOverlap, {}};

  const bool past_the_end =
      slot->total != 0 && (range.end > slot->total || !fragment.more_fragments);
  const bool before_what_is_there =
      !fragment.more_fragments && !slot->ranges.empty() && slot->ranges.back().end > range.end;
  if (past_the_end || before_what_is_there || !insert(*slot, range)) {
    slot->poisoned = true;
    slot->bytes = Bytes{};
    slot->ranges.clear();
    return {Outcome::kOverlap, {}};
  }
  if (!fragment.more_fragments) slot->total = range.end;
  if (slot->bytes.size() < kIpv4Header + range.end) slot->bytes.resize(kIpv4Header + range.end);
  std::ranges::copy(fragment.payload,
                    slot->bytes.begin() + static_cast<std::ptrdiff_t>(kIpv4Header + range.begin));

  const bool whole = slot->total != 0 && slot->ranges.size() == 1 && slot->ranges[0].begin == 0 &&
                     slot->ranges[0].end == slot->total;
  if (!whole) return {Outcome::kWaiting, {}};
  complete_ = std::move(slot->bytes);
  *slot = Slot{};
  write_ipv4(complete_.data(), fragment.source, fragment.destination, fragment.protocol,
             complete_.size() - kIpv4Header);
  Result result{Outcome::kComplete, fragment};
  result.packet.more_fragments = false;
  result.packet.fragment_offset = 0;
  result.packet.whole = complete_;
  result.packet.payload = result.packet.whole.subspan(kIpv4Header);
  return result;
}

size_t Reassembly::waiting() const {
  return static_cast<size_t>(std::ranges::count_if(slots_, [](const Slot& s) { return s.used; }));
}

}  // namespace sandbox::net
