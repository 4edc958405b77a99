#include "files/service.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace sandbox::files {

namespace {

constexpr size_t kReadSize = 256U << 10;
// Kept back for the port, the control socket, inotify, epoll and the O_PATH descriptors of one
// request.
constexpr size_t kReservedFds = 64;

// Whoever notices first that the machine has gone, reading or writing: it is the ordinary end.
Error port_error(int number) {
  if (number == EPIPE || number == ECONNRESET)
    return Error{Code::kCancelled, "the file port was closed"};
  return errno_error(number, "the file port");
}

}  // namespace

Service::Service(EventLoop& loop, Fd port)
    : loop_(loop), port_(std::move(port)), input_(kReadSize) {}

Service::~Service() {
  loop_.remove(port_.get());
  for (const auto& [id, server] : servers_)
    if (server->tree().watch_fd() >= 0) loop_.remove(server->tree().watch_fd());
}

Result<std::unique_ptr<Service>> Service::create(EventLoop& loop, Fd port, const Config& config,
                                                 size_t descriptors) {
  TRY(set_nonblocking(port.get(), true));
  std::unique_ptr<Service> service(new Service(loop, std::move(port)));
  const size_t shares = std::max<size_t>(config.shares.size(), 1);
  const size_t each = (std::max(descriptors, kReservedFds + shares * 16) - kReservedFds) / shares;
  TreeOptions options;
  options.uid = config.uid;
  options.gid = config.gid;
  options.cached_fds = std::min<size_t>(each / 4, 4096);
  options.open_handles = each / 2;
  for (const ShareConfig& share : config.shares) {
    options.read_only = share.read_only;
    ASSIGN(auto tree, Tree::open(share.path, options));
    auto server = std::make_unique<Server>(std::move(tree));
    server->on_refusal([s = service.get(), id = share.id](auto operation, auto detail) {
      if (s->on_refusal_) s->on_refusal_({id, std::string(operation), std::string(detail)});
    });
    service->servers_[share.id] = std::move(server);
  }
  return service;
}

Status Service::begin() {
  for (const auto& [id, server] : servers_) {
    const int fd = server->tree().watch_fd();
    if (fd >= 0)
      TRY(loop_.add(fd, EventLoop::kRead, [this, share = id](uint32_t) { on_host_change(share); }));
  }
  return loop_.add(port_.get(), EventLoop::kRead, [this](uint32_t ready) { on_port(ready); });
}

template <class Write>
auto Service::framed(uint32_t share, Write&& write) {
  const size_t start = out_.size();
  out_.resize(start + kFrameHeader);
  auto result = write(out_);
  const size_t payload = out_.size() - start - kFrameHeader;
  if (payload == 0) {
    out_.resize(start);
  } else {
    write_frame_header(out_.data() + start, share, payload);
  }
  return result;
}

void Service::on_port(uint32_t ready) {
  if ((ready & EventLoop::kWrite) != 0) flush();
  const bool readable = (ready & (EventLoop::kRead | EventLoop::kHangup)) != 0;
  if (!ended_ && readable && !congested() && !read_port()) return;
  // Requests that congestion left waiting have no event of their own: they go on as soon as there
  // is room.
  do {
    if (ended_ || !answer_waiting()) return;
    flush();
  } while (left_waiting_ && !congested());
  if (!ended_) set_interest();
}

bool Service::read_port() {
  const ssize_t n = ::read(port_.get(), input_.data(), input_.size());
  if (n > 0) {
    decoder_.append(ByteView(input_).first(static_cast<size_t>(n)));
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  end(port_error(n == 0 ? EPIPE : errno));
  return false;
}

bool Service::answer_waiting() {
  left_waiting_ = true;
  while (!congested()) {
    auto message = decoder_.next();
    if (!message) return end(std::move(message).error()), false;
    if (!*message) {
      left_waiting_ = false;
      return true;
    }
    const auto server = servers_.find((*message)->share);
    if (server == servers_.end()) {
      end(Error{Code::kProtocol,
                fmt::format("a message for share {}, which there is not", (*message)->share)});
      return false;
    }
    Status handled = framed(server->first, [&](Bytes& out) {
      return server->second->handle((*message)->payload, out);
    });
    if (!handled) return end(std::move(handled).error()), false;
  }
  return true;
}

void Service::on_host_change(uint32_t share) {
  if (congested()) return;
  Server& server = *servers_.at(share);
  std::vector<Invalidation> changes;
  server.tree().read_changes(changes);
  if (ended_ || !server.initialized()) return;
  for (const Invalidation& change : changes) {
    framed(share, [&](Bytes& out) {
      Server::notify(change, out);
      return 0;
    });
  }
  flush();
  if (!ended_) set_interest();
}

void Service::flush() {
  while (sent_ < out_.size()) {
    const ssize_t n = ::write(port_.get(), out_.data() + sent_, out_.size() - sent_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return end(port_error(errno));
    sent_ += static_cast<size_t>(n);
  }
  out_.clear();
  sent_ = 0;
  if (out_.capacity() > 2 * kMaxWaiting) out_.shrink_to_fit();
}

void Service::set_interest() {
  const bool waiting = sent_ < out_.size();
  const uint32_t read = congested() ? 0 : EventLoop::kRead;
  loop_.modify(port_.get(), read | (waiting ? EventLoop::kWrite : 0));
  for (const auto& [id, server] : servers_)
    if (const int fd = server->tree().watch_fd(); fd >= 0) loop_.modify(fd, read);
}

void Service::end(Error error) {
  if (ended_) return;
  ended_ = true;
  loop_.remove(port_.get());
  if (on_end_) on_end_(std::move(error));
}

}  // namespace sandbox::files
