// c-ares owns the sockets and the retries; this file owns the questions. A Pending lives in
// pending_ until it is settled (an answer, an error, the deadline); c-ares may hold on to it a
// little longer through its Ticket, and what arrives then is dropped. Callbacks run from the loop,
// never from inside query() or a c-ares callback, so that they may do anything, destroying the
// resolver included.

#include "gateway/resolver.h"

#include <ares.h>
#include <sys/random.h>

#include <algorithm>
#include <optional>

#include "base/ip.h"
#include "base/text.h"

namespace sandbox::gateway {

namespace {

constexpr int kFirstTimeoutMs = 1500;
constexpr int kTries = 2;
constexpr int kUdpSize = 1232;

// "1.2.3.4", "1.2.3.4:53", "fd00::1", "[fd00::1]:53" in the form c-ares reads.
std::optional<std::string> server_for_ares(std::string_view text) {
  std::string_view host = text;
  std::string_view port = "53";
  const bool bracketed = text.starts_with('[');
  const bool bare_v6 = !bracketed && std::count(text.begin(), text.end(), ':') > 1;
  if (const size_t colon = text.rfind(':');
      colon != std::string_view::npos && !bare_v6 && (!bracketed || text[colon - 1] == ']')) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (bracketed) {
    if (!host.ends_with(']')) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  }
  const auto address = IpAddress::parse(host);
  const auto number = parse_decimal(port);
  const bool v6_form = host.find(':') != std::string_view::npos;
  if (!address || !number || *number == 0 || *number > 0xFFFF || bracketed != (v6_form && !bare_v6))
    return std::nullopt;
  return v6_form ? fmt::format("[{}]:{}", host, *number) : fmt::format("{}:{}", host, *number);
}

// Identical queries: same folded name, type and flags.
std::string key_of(const dns::Question& question, const dns::Flags& flags) {
  return fmt::format("{}/{}/{}{}{}{}", to_lower(as_text(question.name.wire)),
                     static_cast<int>(question.type), flags.recursion_desired ? 'r' : '-',
                     flags.checking_disabled ? 'c' : '-', flags.authentic_data ? 'a' : '-',
                     flags.dnssec_ok ? 'd' : '-');
}

uint16_t random_id() {
  uint16_t id = 0;
  // Two bytes are always there once the kernel has been seeded, which getrandom waits for.
  while (::getrandom(&id, sizeof id, 0) != sizeof id) {
  }
  return id;
}

}  // namespace

struct Resolver::Pending {
  std::string key;
  dns::Question question;
  dns::Flags flags;
  std::vector<Callback> waiters;
  EventLoop::TimerId deadline = 0;
  Result<Bytes> result = fail(Code::kCancelled, "the resolver was stopped");
  bool settled = false;
};

// What c-ares holds for one transmission.
struct Resolver::Ticket {
  Resolver* resolver;
  std::shared_ptr<Pending> pending;
};

Result<std::unique_ptr<Resolver>> Resolver::create(EventLoop& loop,
                                                   const std::vector<std::string>& servers) {
  std::unique_ptr<Resolver> resolver(new Resolver(loop));
  ares_options options{};
  options.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_EDNS;
  options.timeout = kFirstTimeoutMs;
  options.tries = kTries;
  options.ednspsz = kUdpSize;
  options.sock_state_cb = &Resolver::on_socket_state;
  options.sock_state_cb_data = resolver.get();
  std::string nowhere = "/dev/null";
  options.resolvconf_path = nowhere.data();
  std::string lookups = "b";  // DNS only
  options.lookups = lookups.data();
  const int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ |
                   ARES_OPT_SOCK_STATE_CB | ARES_OPT_RESOLVCONF | ARES_OPT_LOOKUPS;
  if (const int status = ares_init_options(&resolver->channel_, &options, mask);
      status != ARES_SUCCESS)
    return fail(Code::kUnavailable, "resolver: {}", ares_strerror(status));
  TRY(resolver->use_servers(servers));
  return resolver;
}

Resolver::~Resolver() {
  if (channel_ != nullptr) ares_destroy(channel_);  // settles everything as cancelled
  loop_.cancel(retry_timer_);
  loop_.cancel(deliver_timer_);
  for (const auto& [key, pending] : pending_) loop_.cancel(pending->deadline);
  std::vector<std::shared_ptr<Pending>> left = std::move(settled_);
  for (const auto& [key, pending] : pending_) left.push_back(pending);
  pending_.clear();
  for (const auto& pending : left)
    for (const Callback& waiter : pending->waiters) waiter(pending->result);
}

Status Resolver::use_servers(const std::vector<std::string>& servers) {
  std::string list;
  for (const std::string& server : servers) {
    const auto form = server_for_ares(server);
    if (!form) return fail(Code::kInvalid, "resolver '{}' is no ADDRESS or ADDRESS:PORT", server);
    list += (list.empty() ? "" : ",") + *form;
  }
  ares_cancel(channel_);  // the list cannot change under outstanding questions
  if (const int status = ares_set_servers_ports_csv(channel_, list.c_str()); status != ARES_SUCCESS)
    return fail(Code::kInternal, "resolvers {}: {}", list, ares_strerror(status));
  has_servers_ = !servers.empty();
  return {};
}

Status Resolver::set_servers(const std::vector<std::string>& servers) {
  TRY(use_servers(servers));
  // A copy: sending may settle one at once.
  const auto outstanding = pending_;
  for (const auto& [key, pending] : outstanding) send(pending);
  arm_timer();
  return {};
}

void Resolver::query(const dns::Question& question, const dns::Flags& flags, Callback callback) {
  std::string key = key_of(question, flags);
  if (const auto known = pending_.find(key);
      known != pending_.end() && known->second->waiters.size() < kMaxWaiters) {
    known->second->waiters.push_back(std::move(callback));
    return;
  }
  auto pending = std::make_shared<Pending>();
  pending->key = key;
  pending->question = question;
  pending->flags = flags;
  pending->waiters.push_back(std::move(callback));
  if (pending_.contains(key) || std::max(pending_.size(), in_flight_) >= kMaxOutstanding)
    return settle(pending, fail(Code::kLimit, "too many questions are outstanding"));
  pending_.emplace(std::move(key), pending);
  pending->deadline = loop_.after(kDeadline, [this, pending] {
    settle(pending, fail(Code::kUnavailable, "no resolver answered in time"));
  });
  send(pending);
  arm_timer();
}

void Resolver::send(const std::shared_ptr<Pending>& pending) {
  if (!has_servers_) return settle(pending, fail(Code::kUnavailable, "the host has no resolver"));
  const Bytes message = dns::build_query(random_id(), pending->question, pending->flags);
  ++in_flight_;
  auto ticket = std::make_unique<Ticket>(Ticket{this, pending});
  ares_send(channel_, message.data(), static_cast<int>(message.size()), &Resolver::on_answer,
            ticket.release());
}

void Resolver::on_answer(void* raw_ticket, int status, int /*timeouts*/, unsigned char* bytes,
                         int length) {
  const std::unique_ptr<Ticket> ticket(static_cast<Ticket*>(raw_ticket));
  Resolver& self = *ticket->resolver;
  --self.in_flight_;
  // Cancelled for a change of servers: asked again there.
  if (status == ARES_ECANCELLED || status == ARES_EDESTRUCTION) return;
  if (bytes != nullptr && length > 0) {
    self.settle(ticket->pending, Bytes(bytes, bytes + length));
  } else {
    self.settle(ticket->pending,
                fail(Code::kUnavailable, "no resolver answered: {}", ares_strerror(status)));
  }
}

void Resolver::settle(const std::shared_ptr<Pending>& pending, Result<Bytes> result) {
  if (pending->settled) return;
  pending->settled = true;
  pending->result = std::move(result);
  loop_.cancel(pending->deadline);
  if (const auto known = pending_.find(pending->key);
      known != pending_.end() && known->second == pending)
    pending_.erase(known);
  settled_.push_back(pending);
  deliver_soon();
}

void Resolver::deliver_soon() {
  if (deliver_timer_ != 0) return;
  deliver_timer_ = loop_.at(loop_.now(), [this] { deliver(); });
}

void Resolver::deliver() {
  deliver_timer_ = 0;
  const std::vector<std::shared_ptr<Pending>> ready = std::move(settled_);
  settled_.clear();
  // Moved out, because c-ares may hold on to the Pending for a while yet.
  for (const auto& pending : ready)
    for (const Callback& waiter : std::exchange(pending->waiters, {})) waiter(pending->result);
}

void Resolver::on_socket_state(void* raw_self, int fd, int readable, int writable) {
  Resolver& self = *static_cast<Resolver*>(raw_self);
  const uint32_t interest =
      (readable != 0 ? EventLoop::kRead : 0U) | (writable != 0 ? EventLoop::kWrite : 0U);
  if (interest == 0) return self.loop_.remove(fd);
  if (self.loop_.watches(fd)) return self.loop_.modify(fd, interest);
  const auto added = self.loop_.add(fd, interest, [&self, fd](uint32_t ready) {
    const bool read = (ready & (EventLoop::kRead | EventLoop::kHangup)) != 0;
    self.process(read ? fd : ARES_SOCKET_BAD,
                 (ready & EventLoop::kWrite) != 0 ? fd : ARES_SOCKET_BAD);
  });
  // Unwatched, the question runs into its deadline; there is nothing better to do with one
  // descriptor too few.
  (void)added;
}

void Resolver::process(int read_fd, int write_fd) {
  ares_process_fd(channel_, read_fd, write_fd);
  arm_timer();
}

// c-ares keeps no timer of its own: it is called when its next retry is due.
void Resolver::arm_timer() {
  loop_.cancel(retry_timer_);
  retry_timer_ = 0;
  timeval wait{};
  if (in_flight_ == 0 || ares_timeout(channel_, nullptr, &wait) == nullptr) return;
  const Duration delay =
      std::chrono::seconds(wait.tv_sec) + std::chrono::microseconds(wait.tv_usec);
  retry_timer_ = loop_.after(delay, [this] { process(ARES_SOCKET_BAD, ARES_SOCKET_BAD); });
}

}  // namespace sandbox::gateway
