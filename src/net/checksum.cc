// The sum is taken over native 64-bit words with end-around carry and folded at the end: ones'
// complement addition does not care for word size, and byte order only swaps the two bytes of the
// result (RFC 1071, 2).

#include "net/checksum.h"

#include <bit>
#include <cstring>

namespace sandbox::net {
namespace {

template <class Word>
Word load(const uint8_t* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

uint64_t add_carry(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum + (sum < a ? 1 : 0);
}

uint16_t fold(uint64_t sum) {
  sum = (sum >> 32) + (sum & 0xffffffff);
  sum = (sum >> 32) + (sum & 0xffffffff);
  sum = (sum >> 16) + (sum & 0xffff);
  sum = (sum >> 16) + (sum & 0xffff);
  return static_cast<uint16_t>((sum >> 16) + (sum & 0xffff));
}

uint16_t swap_bytes(uint16_t v) {
  return static_cast<uint16_t>((v << 8) | (v >> 8));
}

// The compiler's vectors, in a version for the machine's own (as large as AVX2's) and one for all.
// Sanitizers cannot run before a program is linked, which is when the version is chosen.
using Words = uint64_t __attribute__((vector_size(32)));
#if defined(__x86_64__) && !defined(SANDBOX_SANITIZED)
#define SANDBOX_VECTOR_VERSIONS __attribute__((target_clones("avx2", "default")))
#else
#define SANDBOX_VECTOR_VERSIONS
#endif

constexpr size_t kBlock = 2 * sizeof(Words);

// Sum of the whole blocks. Below 2^32 of them the two halves of a word are summed apart, so that
// nothing carries.
SANDBOX_VECTOR_VERSIONS uint64_t sum_blocks(const uint8_t* at, size_t size) {
  Words low[2] = {}, high[2] = {};
  for (; size >= kBlock; at += kBlock, size -= kBlock) {
    for (size_t i = 0; i < 2; ++i) {
      Words words;
      std::memcpy(&words, at + i * sizeof words, sizeof words);
      low[i] += words & 0xffffffff;
      high[i] += words >> 32;
    }
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof(Words) / sizeof(uint64_t); ++i)
    for (const Words& lane : {low[0], low[1], high[0], high[1]}) sum = add_carry(sum, lane[i]);
  return sum;
}

// Sum of `size` bytes as big-endian words, an odd last byte padded with zero.
uint16_t sum_bytes(const uint8_t* at, size_t size) {
  uint64_t sum = 0;
  if (size >= kBlock) {
    sum = sum_blocks(at, size);
    at += size / kBlock * kBlock;
    size %= kBlock;
  }
  for (; size >= 8; at += 8, size -= 8) sum = add_carry(sum, load<uint64_t>(at));
  if (size >= 4) {
    sum = add_carry(sum, load<uint32_t>(at));
    at += 4;
    size -= 4;
  }
  if (size > 0) {
    uint64_t word = 0;
    std::memcpy(&word, at, size);
    sum = add_carry(sum, word);
  }
  const uint16_t native = fold(sum);
  return std::endian::native == std::endian::little ? swap_bytes(native) : native;
}

}  // namespace

void Checksum::add_sum(uint16_t piece_sum, size_t length) {
  sum_ += odd_ ? swap_bytes(piece_sum) : piece_sum;
  odd_ ^= (length & 1) != 0;
}

void Checksum::add(ByteView piece) {
  add_sum(sum_bytes(piece.data(), piece.size()), piece.size());
}

// Copies in pieces that stay in the first-level cache for the sum.
void Checksum::add_copy(ByteView piece, uint8_t* to) {
  constexpr size_t kPiece = 8192;
  while (!piece.empty()) {
    const size_t n = piece.size() < kPiece ? piece.size() : kPiece;
    std::memcpy(to, piece.data(), n);
    add_sum(sum_bytes(to, n), n);
    piece = piece.subspan(n);
    to += n;
  }
}

uint16_t Checksum::finish() const {
  return static_cast<uint16_t>(~fold(sum_));
}

uint16_t checksum_of(ByteView bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.finish();
}

}  // namespace sandbox::net
