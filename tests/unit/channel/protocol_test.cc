#include "channel/protocol.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace sandbox::channel {
namespace {

Bytes bytes_of(const Frame& frame) {
  Bytes out;
  append_frame(out, frame);
  return out;
}

// All frames of `bytes`, fed in pieces of `piece`, as "type/stream/flags/payload"; an error ends
// the list with its code.
std::vector<std::string> decode(ByteView bytes, size_t piece) {
  FrameDecoder decoder;
  std::vector<std::string> out;
  while (!bytes.empty()) {
    const size_t count = std::min(piece, bytes.size());
    decoder.feed(bytes.first(count));
    bytes = bytes.subspan(count);
    while (true) {
      const auto frame = decoder.next();
      if (!frame) {
        out.push_back("error");
        return out;
      }
      if (!*frame) break;
      out.push_back(fmt::format("{}/{}/{:#x}/{}", name_of((*frame)->type), (*frame)->stream,
                                (*frame)->flags, to_hex((*frame)->payload)));
    }
  }
  return out;
}

TEST(Frame, HasTheLayoutOfTheHeaderComment) {
  const Bytes payload = {0xaa, 0xbb};
  EXPECT_EQ(to_hex(bytes_of(data_frame(0x01020304, Pipe::kStderr, payload, true))),
            "02000000"
            "04030201"
            "12"
            "82"
            "0000"
            "aabb");
}

TEST(Frame, ComesOutTheSameInPiecesOfAnySize) {
  Bytes stream;
  append_frame(stream, {0, FrameType::kPing, 0, as_bytes("abc")});
  append_frame(stream, data_frame(7, Pipe::kStdin, as_bytes("hello")));
  append_frame(stream, credit_frame(7, Pipe::kStdout, 65536).view());
  append_frame(stream, {7, FrameType::kReset, 0, {}});
  const std::vector<std::string> expected = {"ping/0/0x0/616263", "data/7/0x0/68656c6c6f",
                                             "credit/7/0x1/00000100", "reset/7/0x0/"};
  for (size_t piece = 1; piece <= stream.size(); ++piece)
    EXPECT_EQ(decode(stream, piece), expected) << piece;
}

TEST(Frame, OfTheLargestSizePassesAndOneByteMoreDoesNot) {
  const Bytes largest(kMaxPayload, 1);
  EXPECT_EQ(decode(bytes_of({0, FrameType::kResume, 0, largest}), 65536).size(), 1U);
  const Bytes larger(kMaxPayload + 1, 1);
  EXPECT_EQ(decode(bytes_of({0, FrameType::kResume, 0, larger}), 65536),
            std::vector<std::string>{"error"});
}

TEST(Frame, IsRefusedFromItsHeaderAlone) {
  // A length that will never be waited for, nor memory taken for it.
  FrameDecoder decoder;
  decoder.feed(
      *from_hex("ffffffff"
                "00000000"
                "02"
                "00"
                "0000"));
  EXPECT_FALSE(decoder.next());
  EXPECT_EQ(decoder.buffered(), 0U);
}

TEST(Frame, IsRefusedWhenAnyFieldIsIllegal) {
  struct Case {
    const char* why;
    const char* hex;
  };
  const std::vector<Case> cases = {
      {"type 0",
       "00000000"
       "00000000"
       "00"
       "00"
       "0000"},
      {"unknown type",
       "00000000"
       "00000000"
       "09"
       "00"
       "0000"},
      {"type 255",
       "00000000"
       "01000000"
       "ff"
       "00"
       "0000"},
      {"data on stream 0",
       "01000000"
       "00000000"
       "12"
       "00"
       "0000"
       "61"},
      {"ping on a stream",
       "00000000"
       "01000000"
       "06"
       "00"
       "0000"},
      {"last field not zero",
       "00000000"
       "00000000"
       "06"
       "00"
       "0100"},
      {"flags on a ping",
       "00000000"
       "00000000"
       "06"
       "80"
       "0000"},
      {"EOF on a credit",
       "04000000"
       "01000000"
       "13"
       "80"
       "0000"
       "01000000"},
      {"a fourth pipe",
       "01000000"
       "01000000"
       "12"
       "03"
       "0000"
       "61"},
      {"unknown data flag",
       "01000000"
       "01000000"
       "12"
       "40"
       "0000"
       "61"},
      {"short credit",
       "03000000"
       "01000000"
       "13"
       "00"
       "0000"
       "010000"},
      {"credit of nothing",
       "04000000"
       "01000000"
       "13"
       "00"
       "0000"
       "00000000"},
      {"credit above the window",
       "04000000"
       "01000000"
       "13"
       "00"
       "0000"
       "01000400"},
      {"signal 0",
       "01000000"
       "01000000"
       "14"
       "00"
       "0000"
       "00"},
      {"signal 65",
       "01000000"
       "01000000"
       "14"
       "00"
       "0000"
       "41"},
      {"resize of 3 bytes",
       "03000000"
       "01000000"
       "15"
       "00"
       "0000"
       "000000"},
      {"reset with a payload",
       "01000000"
       "01000000"
       "17"
       "00"
       "0000"
       "00"},
      {"started with a payload",
       "01000000"
       "01000000"
       "11"
       "00"
       "0000"
       "00"},
      {"empty exec",
       "00000000"
       "01000000"
       "10"
       "00"
       "0000"},
      {"ping of 65 bytes",
       "41000000"
       "00000000"
       "06"
       "00"
       "0000"},
  };
  for (const Case& test : cases)
    EXPECT_EQ(decode(*from_hex(test.hex), 4096), std::vector<std::string>{"error"}) << test.why;
}

TEST(FrameDecoder, StaysFailedWhateverFollows) {
  FrameDecoder decoder;
  decoder.feed(*from_hex("000000000000000000000000"));
  EXPECT_FALSE(decoder.next());
  decoder.feed(bytes_of({0, FrameType::kPing, 0, {}}));
  const auto again = decoder.next();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kProtocol);
}

TEST(SendQueue, KeepsTheOrderUnderPartialWrites) {
  SendQueue queue;
  Bytes written;
  Bytes expected;
  for (uint8_t i = 0; i < 100; ++i) {
    const Bytes payload(i, i);
    queue.push(data_frame(1, Pipe::kStdout, payload));
    append_frame(expected, data_frame(1, Pipe::kStdout, payload));
    const size_t count = std::min<size_t>(queue.pending().size(), 1 + i % 7);
    written.insert(written.end(), queue.pending().begin(),
                   queue.pending().begin() + static_cast<ptrdiff_t>(count));
    queue.sent(count);
  }
  written.insert(written.end(), queue.pending().begin(), queue.pending().end());
  queue.sent(queue.pending().size());
  EXPECT_EQ(written, expected);
  EXPECT_TRUE(queue.empty());
}

TEST(Frame, FixedPayloadsReadBack) {
  const OwnedFrame resize = resize_frame(3, {50, 132});
  EXPECT_EQ(read_resize(resize.view()).rows, 50);
  EXPECT_EQ(read_resize(resize.view()).columns, 132);
  EXPECT_EQ(read_signal(signal_frame(3, 15).view()), 15);
  EXPECT_EQ(read_credit(credit_frame(3, Pipe::kStdin, 77).view()), 77U);
}

}  // namespace
}  // namespace sandbox::channel
