#include "gateway/gateway.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/socket.h"

namespace sandbox::gateway {

namespace {

constexpr uint16_t kDnsPort = 53;
constexpr size_t kMaxControl = 256 * 1024;
constexpr int kWireBuffer = 1 << 20;

tcp::Config stack_config(uint16_t mtu) {
  tcp::Config config;
  config.mtu = mtu;
  // Blocks only before the host's entropy pool was ready, which was long before any sandbox.
  if (::getrandom(config.secret.data(), config.secret.size(), 0) !=
      static_cast<ssize_t>(config.secret.size()))
    std::abort();
  return config;
}

Result<std::unique_ptr<net::Wire>> make_wire(WireForm form, Fd fd) {
  if (form == WireForm::kTap) return net::make_tap_wire(std::move(fd));
  set_socket_buffers(fd.get(), kWireBuffer);
  return net::make_stream_wire(std::move(fd));
}

nlohmann::json tcp_stats(const tcp::Stats& s) {
  return {{"segments_in", s.segments_in},
          {"segments_out", s.segments_out},
          {"malformed", s.malformed},
          {"bad_checksum", s.bad_checksum},
          {"nonsense_flags", s.nonsense_flags},
          {"bad_endpoint", s.bad_endpoint},
          {"out_of_order", s.out_of_order},
          {"retransmitted", s.retransmitted},
          {"timeouts", s.timeouts},
          {"challenge_acks", s.challenge_acks},
          {"flows_opened", s.flows_opened},
          {"flow_limit", s.flow_limit},
          {"evicted", s.evicted}};
}

}  // namespace

Result<std::unique_ptr<Gateway>> Gateway::create(EventLoop& loop, GatewayConfig config,
                                                 Descriptors descriptors) {
  ASSIGN(auto wire, make_wire(config.wire, std::move(descriptors.wire)));
  ASSIGN(auto sink, audit::RecordSink::create(loop, std::move(descriptors.records)));
  ASSIGN(auto resolver, Resolver::create(loop, config.resolvers));
  ASSIGN(auto addresses, HostAddresses::create());
  return std::unique_ptr<Gateway>(new Gateway(loop, std::move(config), std::move(wire),
                                              std::move(descriptors.control), std::move(sink),
                                              std::move(resolver), std::move(addresses)));
}

Gateway::Gateway(EventLoop& loop, GatewayConfig config, std::unique_ptr<net::Wire> wire, Fd control,
                 std::unique_ptr<audit::RecordSink> sink, std::unique_ptr<Resolver> resolver,
                 std::unique_ptr<HostAddresses> addresses)
    : loop_(loop),
      wire_(std::move(wire)),
      control_(std::move(control)),
      sink_(std::move(sink)),
      resolver_(std::move(resolver)),
      addresses_(std::move(addresses)),
      reporter_(*sink_),
      gates_(std::move(config.policy),
             {addresses_->all(), config.link.gateway_ip, std::move(config.proxy)}),
      questions_({[this](const Questions::Question& question) { reply(asked_message(question)); },
                  [this](uint64_t id) { reply(over_message(id)); }}),
      link_(config.link, *wire_, *this),
      names_(
          gates_,
          [this](const dns::Question& question, const dns::Flags& flags, Resolver::Callback done) {
            resolver_->query(question, flags, std::move(done));
          },
          [this] { return loop_.now(); },
          [this](const Decision& decision, std::optional<Ipv4> address) {
            reporter_.dns(decision, address);
          }),
      relay_({loop, gates_, names_, reporter_, link_, questions_}),
      stack_(stack_config(config.link.mtu), relay_, *this),
      udp_({loop, gates_, names_, reporter_, link_}, policy::Protocol::kUdp),
      echo_({loop, gates_, names_, reporter_, link_}, policy::Protocol::kIcmp) {
  relay_.set_stack(stack_);
  names_.set_hold([this](const policy::HostName& name, std::function<void()> resume) {
    const auto rule = gates_.missing_rule(name);
    return rule && questions_.hold(*rule, fmt::format("look up {}", name.text()), std::move(resume),
                                   loop_.now());
  });
}

Gateway::~Gateway() = default;

Status Gateway::start() {
  TRY(set_nonblocking(control_.get(), true));
  TRY(loop_.add(control_.get(), EventLoop::kRead, [this](uint32_t) { on_control(); }));
  TRY(addresses_->follow(
      loop_, [this](const std::vector<IpAddress>& all) { gates_.set_host_addresses(all); }));
  TRY(loop_.add(wire_->fd(), EventLoop::kRead, [this](uint32_t ready) { on_wire(ready); }));
  loop_.on_idle([this] { settle(); });
  reply(ready_message());
  return {};
}

Status Gateway::run() {
  TRY(start());
  loop_.run();
  sink_->finish();
  return std::move(ended_);
}

void Gateway::end(Status status) {
  ended_ = std::move(status);
  loop_.stop();
}

// ---- the wire ----

void Gateway::on_wire(uint32_t ready) {
  if ((ready & (EventLoop::kRead | EventLoop::kHangup)) == 0) return;  // writing: see settle()
  const Instant now = loop_.now();
  Status status = wire_->receive([&](ByteView frame) { link_.receive(frame, now); });
  if (!status) end(std::move(status));
}

void Gateway::on_tcp(const net::Ipv4Packet& packet) {
  stack_.input(packet.source, packet.destination, packet.payload, loop_.now());
}

void Gateway::on_udp(const net::Ipv4Packet& packet, const net::UdpDatagram& datagram) {
  const bool for_names =
      packet.destination == link_.config().gateway_ip && datagram.destination_port == kDnsPort;
  if (!for_names)
    return udp_.send({packet.destination, datagram.destination_port, datagram.source_port, 0,
                      datagram.payload, packet.whole});
  names_.answer(datagram.payload, NameService::Transport::kUdp,
                [this, port = datagram.source_port](const Bytes& message) {
                  (void)link_.send_udp(link_.config().gateway_ip, kDnsPort, port, message);
                });
}

void Gateway::on_echo_request(const net::Ipv4Packet& packet, const net::IcmpEcho& echo) {
  echo_.send({packet.destination, 0, echo.identifier, echo.sequence, echo.payload, packet.whole});
}

void Gateway::on_first_drop(net::Drop drop, std::string_view detail) {
  reporter_.note(fmt::format("dropped a frame ({}{}{}); more of the kind are only counted",
                             net::drop_name(drop), detail.empty() ? "" : ": ", detail));
}

// The stack and the wire take turns until one has nothing more: the stack fills what room there is,
// the wire empties it.
void Gateway::settle() {
  const Instant now = loop_.now();
  if (stack_.next_deadline() <= now) stack_.on_timer(now);
  do {
    stack_.settle(now);
    Status status = wire_->flush();
    if (!status) return end(std::move(status));
  } while (stack_.wire_wanted() && !wire_->blocked());
  loop_.modify(wire_->fd(), EventLoop::kRead | (wire_->blocked() ? EventLoop::kWrite : 0));
  relay_.sweep();
  arm_stack_timer();
  arm_ask_timer();
  if (reporter_.broken()) end(fail(Code::kUnavailable, "the recorder is gone"));
}

void Gateway::arm_stack_timer() {
  const Instant next = stack_.next_deadline();
  if (next == stack_timer_at_) return;
  if (stack_timer_ != 0) loop_.cancel(stack_timer_);
  stack_timer_ = 0;
  stack_timer_at_ = next;
  if (next == Instant::never()) return;
  // The round that it ends is all it is for: settle() follows every round.
  stack_timer_ = loop_.at(next, [this] {
    stack_timer_ = 0;
    stack_timer_at_ = Instant::never();
  });
}

// For questions that nobody answers, and grants that nothing uses.
void Gateway::arm_ask_timer() {
  const Instant next = std::min(questions_.next_deadline(), gates_.next_grant_end());
  if (next == ask_timer_at_) return;
  if (ask_timer_ != 0) loop_.cancel(ask_timer_);
  ask_timer_ = 0;
  ask_timer_at_ = next;
  if (next == Instant::never()) return;
  ask_timer_ = loop_.at(next, [this] {
    ask_timer_ = 0;
    ask_timer_at_ = Instant::never();
    gates_.expire_grants(loop_.now());
    questions_.expire(loop_.now());
  });
}

// ---- control ----

void Gateway::on_control() {
  auto received = receive_with_fds(control_.get(), kMaxControl);
  if (received && received->bytes.empty()) return end({});
  if (!received) return reply(error_message(received.error()));
  const auto message = parse_control(received->bytes);
  reply(message ? apply(*message, std::move(received->fds)) : error_message(message.error()));
}

std::string Gateway::apply(const control::Message& message, std::vector<Fd> descriptors) {
  if (const auto* publish = std::get_if<control::Publish>(&message)) {
    if (descriptors.size() != 1)
      return done_message(fail(Code::kInvalid, "publish comes with one listening socket"));
    return done_message(relay_.publish(publish->id, std::move(descriptors[0]), publish->port));
  }
  if (const auto* unpublish = std::get_if<control::Unpublish>(&message))
    return done_message(relay_.unpublish(unpublish->id));
  if (const auto* resolvers = std::get_if<control::Resolvers>(&message))
    return done_message(resolver_->set_servers(resolvers->servers));
  if (const auto* replacement = std::get_if<control::ReplacePolicy>(&message)) {
    replace_policy(replacement->policy);
    return done_message({});
  }
  if (const auto* ask = std::get_if<control::Ask>(&message)) {
    questions_.set_on(ask->on);
    return done_message({});
  }
  if (const auto* reply_to_question = std::get_if<control::Answer>(&message))
    return done_message(answer(*reply_to_question));
  return stats();
}

void Gateway::replace_policy(policy::Policy policy) {
  gates_.replace_policy(std::move(policy));
  relay_.policy_replaced();
  udp_.policy_replaced();
  echo_.policy_replaced();
  questions_.reconsider(
      [this](const policy::HostPattern& rule) { return gates_.has_decided(rule); });
}

Status Gateway::answer(const control::Answer& answer) {
  auto answered = questions_.answer(answer.id, answer.allow, loop_.now());
  if (!answered) return fail(Code::kNotFound, "question {} is over", answer.id);
  if (answer.allow) gates_.grant(answered->rule, loop_.now());
  for (const auto& resume : answered->waiting) resume();
  return {};
}

std::string Gateway::stats() const {
  nlohmann::json drops = nlohmann::json::object();
  for (size_t i = 0; i < static_cast<size_t>(net::Drop::kCount); ++i) {
    const auto drop = static_cast<net::Drop>(i);
    if (link_.dropped(drop) != 0) drops[net::drop_name(drop)] = link_.dropped(drop);
  }
  const nlohmann::json out = {{"tcp_flows", stack_.flow_count()},
                              {"tcp_sessions", relay_.sessions()},
                              {"tcp_connecting", relay_.connecting()},
                              {"tcp_memory", stack_.ring_memory_used()},
                              {"udp_flows", udp_.size()},
                              {"echo_flows", echo_.size()},
                              {"dns_outstanding", resolver_->outstanding()},
                              {"questions", questions_.held()},
                              {"vouched_addresses", gates_.ledger().addresses()},
                              {"records_lost", reporter_.lost()},
                              {"dropped", drops},
                              {"tcp", tcp_stats(stack_.stats())}};
  return out.dump();
}

void Gateway::reply(const std::string& message) {
  // The supervisor reads its answers; if it does not, it will miss one.
  if (::send(control_.get(), message.data(), message.size(), MSG_NOSIGNAL) < 0)
    log::error("control: {}", errno_error(errno, "send").message);
}

}  // namespace sandbox::gateway
