#include "gateway/proxy_tunnel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace sandbox::gateway {

ProxyTunnel::ProxyTunnel(const UpstreamProxy& proxy, const http::Authority& target)
    : proxy_(proxy.text()),
      has_credentials_(!proxy.authorization.empty()),
      left_(http::connect_request(target, proxy.authorization)) {}

ProxyTunnel::State ProxyTunnel::advance(int socket) {
  return left_.empty() ? read(socket) : write(socket);
}

ProxyTunnel::State ProxyTunnel::write(int socket) {
  while (!left_.empty()) {
    const ssize_t put = ::send(socket, left_.data(), left_.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) return State::kWriting;
    if (put < 0) return failed(fmt::format("broke off: {}", std::strerror(errno)));
    left_.erase(0, static_cast<size_t>(put));
  }
  return State::kReading;
}

// Looked at first, then taken as far as it is the answer.
ProxyTunnel::State ProxyTunnel::read(int socket) {
  std::array<uint8_t, 4096> buffer;
  while (true) {
    const ssize_t seen = ::recv(socket, buffer.data(), buffer.size(), MSG_PEEK);
    if (seen < 0 && errno == EINTR) continue;
    if (seen < 0 && errno == EAGAIN) return State::kReading;
    if (seen < 0) return failed(fmt::format("broke off: {}", std::strerror(errno)));
    if (seen == 0) return failed("closed the connection without an answer");
    const auto step = reply_.feed(ByteView(buffer).first(static_cast<size_t>(seen)));
    // It is all there, so it is taken at once.
    if (::recv(socket, buffer.data(), step.consumed, 0) != static_cast<ssize_t>(step.consumed))
      return failed("lost its answer");
    if (step.state != http::ConnectReply::State::kNeedMore) return answered(step.state);
  }
}

ProxyTunnel::State ProxyTunnel::answered(http::ConnectReply::State state) {
  if (state == http::ConnectReply::State::kOpen) return State::kOpen;
  if (state == http::ConnectReply::State::kMalformed)
    return failed("answered something that is not HTTP");
  if (!wants_credentials()) return failed(fmt::format("answered {}", reply_.text()));
  return failed(has_credentials_ ? "refuses the user name and password (407)"
                                 : "asks for a user name and password (407): --upstream-proxy "
                                   "http://USER:PASSWORD@HOST:PORT");
}

ProxyTunnel::State ProxyTunnel::failed(std::string_view what) {
  why_ = fmt::format("the upstream proxy {} {}", proxy_, what);
  return State::kFailed;
}

}  // namespace sandbox::gateway
