#include "gateway/dns_session.h"

#include <algorithm>

namespace sandbox::gateway {

// Stands for one query on its way. The name service drops the reply function when it has nothing to
// say; the ticket inside it then ends all the same.
struct DnsSession::Ticket {
  DnsSession& session;
  std::weak_ptr<bool> alive;
  Ticket(DnsSession& s, std::weak_ptr<bool> a) : session(s), alive(std::move(a)) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (!alive.expired()) session.ticket_gone();
  }
};

DnsSession::DnsSession(TcpRelay& relay, tcp::Flow& flow) : Session(relay, flow) {}

void DnsSession::on_readable() {
  read_queries();
}

// An answer that comes at once ends its ticket in here, which calls again: `reading_` makes that a
// step of the loop instead of a recursion as deep as the guest's queries are many.
void DnsSession::read_queries() {
  if (reading_) return;
  reading_ = true;
  while (flow_ != nullptr && read_some()) {
  }
  reading_ = false;
}

// One step; false when there is nothing to do now.
bool DnsSession::read_some() {
  if (outstanding_ >= kMaxOutstanding || waiting_.size() >= kMaxWaiting) return false;
  Bytes message;
  switch (framer_.next(message)) {
    case dns::TcpFramer::Next::kMessage:
      ask(message);
      return true;
    case dns::TcpFramer::Next::kBroken:
      give_up();
      return false;
    case dns::TcpFramer::Next::kNeedMore:
      break;
  }
  const ByteView bytes = relay_.stack().rx(*flow_).first;
  if (bytes.empty()) return false;
  // Little beyond what is being worked on is taken, so that the rest closes the window.
  const size_t take = std::min<size_t>(bytes.size(), dns::TcpFramer::kMaxQuery);
  framer_.feed(bytes.first(take));
  relay_.stack().consume(*flow_, take);
  return true;
}

void DnsSession::ask(ByteView message) {
  ++outstanding_;
  auto ticket = std::make_shared<Ticket>(*this, alive_);
  relay_.parts().names.answer(message, NameService::Transport::kTcp,
                              [this, ticket, alive = std::weak_ptr(alive_)](const Bytes& bytes) {
                                if (!alive.expired()) reply(bytes);
                              });
}

void DnsSession::reply(ByteView message) {
  const Bytes framed = dns::frame_for_tcp(message);
  waiting_.insert(waiting_.end(), framed.begin(), framed.end());
  pump();
}

void DnsSession::ticket_gone() {
  --outstanding_;
  pump();
  read_queries();
}

void DnsSession::pump() {
  while (flow_ != nullptr && !waiting_.empty()) {
    const tcp::WriteSpans room = relay_.stack().tx_room(*flow_);
    const size_t count = std::min(room.first.size(), waiting_.size());
    if (count == 0) return;
    std::copy_n(waiting_.begin(), count, room.first.begin());
    relay_.stack().tx_commit(*flow_, count);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  if (flow_ == nullptr || finished_ || !guest_finished_ || outstanding_ != 0) return;
  finished_ = true;
  relay_.stack().shutdown_write(*flow_);
}

void DnsSession::on_guest_fin() {
  guest_finished_ = true;
  pump();
}

void DnsSession::on_writable() {
  pump();
  read_queries();
}

void DnsSession::on_closed(tcp::Close) {
  flow_ = nullptr;
  alive_.reset();
}

void DnsSession::give_up() {
  tcp::Flow* flow = flow_;
  flow_ = nullptr;
  alive_.reset();
  relay_.stack().abort(*flow, tcp::Stack::Abort::kAfterFlush);
  relay_.end(*this);
}

}  // namespace sandbox::gateway
