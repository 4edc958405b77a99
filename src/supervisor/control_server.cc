#include "supervisor/control_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/socket.h"

namespace sandbox {

namespace {

constexpr int kBacklog = 32;

Result<ControlServer::Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
    return fail_errno(errno, "SO_PEERCRED");
  return ControlServer::Peer{credentials.uid, credentials.pid};
}

// To somebody who is turned away; it is lost if he does not listen.
void say(const Fd& fd, const Error& error) {
  const std::string message = control::encode(error);
  (void)::send(fd.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

std::string control_socket_path(const Fd& directory) {
  return fmt::format("/proc/self/fd/{}/control", directory.get());
}

Result<std::unique_ptr<ControlServer>> ControlServer::create(EventLoop& loop,
                                                             const std::string& run_dir) {
  ASSIGN(const Fd directory, open_file(run_dir, O_PATH | O_DIRECTORY));
  const std::string path = control_socket_path(directory);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, path.c_str(), sizeof at.sun_path - 1);
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return fail_errno(errno, "socket");
  // One that a killed sandbox of this name left.
  if (::unlink(path.c_str()) < 0 && errno != ENOENT) return fail_errno(errno, "unlink control");
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) < 0)
    return fail_errno(errno, fmt::format("bind {}/control", run_dir));
  if (::chmod(path.c_str(), 0600) < 0) return fail_errno(errno, "chmod control");
  if (::listen(listener.get(), kBacklog) < 0) return fail_errno(errno, "listen");
  return std::unique_ptr<ControlServer>(new ControlServer(loop, std::move(listener)));
}

ControlServer::~ControlServer() {
  loop_.remove(listener_.get());
  for (const Client& client : clients_) {
    loop_.remove(client->fd_.get());
    client->fd_.reset();  // whoever still holds it sees it closed
  }
}

Status ControlServer::start(Handler handler) {
  handler_ = std::move(handler);
  return loop_.add(listener_.get(), EventLoop::kRead, [this](uint32_t) { accept_one(); });
}

void ControlServer::accept_one() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  if (clients_.size() >= kMaxConnections)
    return say(fd, {Code::kLimit,
                    fmt::format("this sandbox has {} control connections already", kMaxConnections),
                    "end one of the commands that are talking to it"});
  (void)adopt(std::move(fd));
}

Status ControlServer::adopt(Fd fd) {
  ASSIGN(const Peer peer, peer_of(fd.get()));
  if (peer.uid != ::geteuid()) {
    const Error error{Code::kPermission, "this sandbox belongs to another user", {}};
    say(fd, error);
    return fail(error);
  }
  TRY(set_nonblocking(fd.get(), true));
  const int number = fd.get();
  auto client = std::make_shared<Connection>(*this, std::move(fd), peer);
  const std::weak_ptr<Connection> weak = client;
  TRY(loop_.add(number, EventLoop::kRead, [this, weak](uint32_t events) {
    if (const Client held = weak.lock()) ready(held, events);
  }));
  clients_.insert(client);
  loop_.after(kFirstRequest, [this, weak] {
    const Client held = weak.lock();
    if (held && held->open() && !held->asked_) close(held);  // open: the server is there as well
  });
  return {};
}

void ControlServer::ready(const Client& client, uint32_t events) {
  if ((events & EventLoop::kWrite) != 0 && !flush(*client)) return close(client);
  if ((events & (EventLoop::kRead | EventLoop::kHangup)) != 0) read_one(client);
}

void ControlServer::read_one(const Client& client) {
  auto received = receive_with_fds(client->fd_.get(), control::kMaxMessage);
  if (received && received->bytes.empty()) return close(client);
  // A reset is followed by the end of file.
  if (!received && received.error().code != Code::kProtocol) return;
  client->asked_ = true;
  if (!received) return client->send(control::encode(received.error()));
  const auto request = control::parse_request(received->bytes);
  if (!request) return client->send(control::encode(request.error()));
  handler_(*request, std::move(received->fds), client);
}

void ControlServer::Connection::send(std::string message) {
  if (!open() || waiting_.size() > kMaxWaiting) return;
  waiting_.push_back(std::move(message));
  // What cannot go on shows as readable or writable: the loop closes it, not the caller's stack.
  (void)server_.flush(*this);
}

bool ControlServer::flush(Connection& connection) {
  auto& waiting = connection.waiting_;
  bool alive = waiting.size() <= kMaxWaiting;
  while (alive && !waiting.empty()) {
    const std::string& front = waiting.front();
    if (::send(connection.fd_.get(), front.data(), front.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      alive = errno == EAGAIN;
      break;
    }
    waiting.pop_front();
  }
  if (!alive) ::shutdown(connection.fd_.get(), SHUT_RDWR);
  loop_.modify(connection.fd_.get(),
               waiting.empty() ? EventLoop::kRead : EventLoop::kRead | EventLoop::kWrite);
  return alive;
}

void ControlServer::close(const Client& client) {
  if (clients_.erase(client) == 0) return;
  loop_.remove(client->fd_.get());
  client->fd_.reset();
  if (client->on_close_) client->on_close_();
}

}  // namespace sandbox
