#include "files/transport.h"

#include <algorithm>

namespace sandbox::files {

namespace {

void put_le32(uint8_t* out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

}  // namespace

void write_frame_header(uint8_t* out, uint32_t share, size_t payload) {
  put_le32(out, static_cast<uint32_t>(payload + kFrameHeader));
  put_le32(out + 4, share);
}

void Decoder::append(ByteView piece) {
  if (failed_) return;
  // What has been handed out is dropped here and not in next(), so that its views live until now.
  if (at_ == buffer_.size()) {
    buffer_.clear();
    at_ = 0;
  } else if (at_ > kMaxPayload) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(at_));
    at_ = 0;
  }
  buffer_.insert(buffer_.end(), piece.begin(), piece.end());
}

Result<std::optional<Message>> Decoder::next() {
  if (failed_) return fail(Code::kProtocol, "the file wire was broken before");
  if (buffered() < kFrameHeader) return std::optional<Message>();
  ByteReader reader(ByteView(buffer_).subspan(at_));
  const size_t length = reader.le32();
  const uint32_t share = reader.le32();
  if (length < kFrameHeader + kMinPayload || length > kFrameHeader + kMaxPayload) {
    failed_ = true;
    return fail(Code::kProtocol, "a file message claims a length of {} bytes", length);
  }
  if (buffered() < length) return std::optional<Message>();
  const ByteView payload = reader.take(length - kFrameHeader);
  at_ += length;
  return std::optional<Message>(Message{share, payload});
}

}  // namespace sandbox::files
