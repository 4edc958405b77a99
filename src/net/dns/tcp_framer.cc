#include "net/dns/message.h"

namespace sandbox::dns {

void TcpFramer::feed(ByteView bytes) {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(read_));
  read_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

TcpFramer::Next TcpFramer::next(Bytes& message) {
  ByteReader reader(ByteView(buffer_).subspan(read_));
  const size_t length = reader.be16();
  if (!reader.ok()) return Next::kNeedMore;
  if (length > kMaxQuery) return Next::kBroken;
  const ByteView body = reader.take(length);
  if (!reader.ok()) return Next::kNeedMore;
  message.assign(body.begin(), body.end());
  read_ += 2 + length;
  return Next::kMessage;
}

Bytes frame_for_tcp(ByteView message) {
  ByteWriter out;
  out.be16(static_cast<uint16_t>(message.size()));
  out.bytes(message);
  return out.take();
}

}  // namespace sandbox::dns
