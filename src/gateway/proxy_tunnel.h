#pragma once
// One CONNECT on a socket that is connected to the upstream proxy: the request out, the answer in,
// and not a byte more, so that what the server behind says first is still in the socket when the
// tunnel is open.

#include <string>

#include "gateway/upstream_proxy.h"
#include "net/http/connect.h"

namespace sandbox::gateway {

class ProxyTunnel {
 public:
  enum class State {
    kWriting,  // call again when the socket takes bytes
    kReading,  // call again when it has some
    kOpen,
    kFailed,  // see why()
  };

  ProxyTunnel(const UpstreamProxy& proxy, const http::Authority& target);

  State advance(int socket);
  // For people: "the upstream proxy proxy.example.org:3128 answered 403 Forbidden".
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] bool wants_credentials() const { return reply_.status() == 407; }

 private:
  State write(int socket);
  State read(int socket);
  State answered(http::ConnectReply::State state);
  State failed(std::string_view what);

  std::string proxy_;
  bool has_credentials_;
  std::string left_;  // of the request
  http::ConnectReply reply_;
  std::string why_;
};

}  // namespace sandbox::gateway
