#include "files/transport.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sandbox::files {
namespace {

Bytes framed(uint32_t share, const Bytes& payload) {
  Bytes out(kFrameHeader);
  write_frame_header(out.data(), share, payload.size());
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

Bytes numbered(size_t size, uint8_t first) {
  Bytes out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<uint8_t>(first + i);
  return out;
}

TEST(Transport, MessagesArriveWholeWhateverThePieces) {
  Bytes stream;
  std::vector<std::pair<uint32_t, Bytes>> sent;
  for (uint32_t i = 0; i < 40; ++i) {
    sent.emplace_back(i * 7, numbered(kMinPayload + i * 997, static_cast<uint8_t>(i)));
    const Bytes one = framed(sent.back().first, sent.back().second);
    stream.insert(stream.end(), one.begin(), one.end());
  }
  for (const size_t piece : {1UL, 2UL, 7UL, 8UL, 4096UL, stream.size()}) {
    Decoder decoder;
    std::vector<std::pair<uint32_t, Bytes>> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.append(ByteView(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (true) {
        auto message = decoder.next();
        ASSERT_TRUE(message.has_value());
        if (!*message) break;
        got.emplace_back((*message)->share,
                         Bytes((*message)->payload.begin(), (*message)->payload.end()));
      }
    }
    EXPECT_EQ(got, sent) << piece;
    EXPECT_EQ(decoder.buffered(), 0U);
  }
}

TEST(Transport, TheLargestMessageArrives) {
  Decoder decoder;
  const Bytes payload(kMaxPayload, 3);
  decoder.append(framed(1, payload));
  auto message = decoder.next();
  ASSERT_TRUE(message.has_value() && message->has_value());
  EXPECT_EQ((*message)->payload.size(), kMaxPayload);
}

TEST(Transport, ALengthOutOfBoundsBreaksTheStreamForGood) {
  for (const uint32_t length :
       {0U, 7U, 8U, 23U, static_cast<uint32_t>(kMaxPayload + 9), 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    Decoder decoder;
    ByteWriter writer;
    writer.le32(length);
    writer.le32(1);
    decoder.append(writer.view());
    ASSERT_FALSE(decoder.next().has_value()) << length;
    decoder.append(framed(1, Bytes(kMinPayload)));
    EXPECT_FALSE(decoder.next().has_value()) << length;
  }
}

TEST(Transport, AnIncompleteMessageIsWaitedFor) {
  Decoder decoder;
  const Bytes whole = framed(9, Bytes(kMinPayload, 1));
  decoder.append(ByteView(whole).first(whole.size() - 1));
  auto message = decoder.next();
  ASSERT_TRUE(message.has_value());
  EXPECT_FALSE(message->has_value());
}

}  // namespace
}  // namespace sandbox::files
