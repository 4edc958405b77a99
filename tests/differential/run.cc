#include "differential/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/check.h"
#include "base/clock.h"

namespace sandbox::tcp::differential {
namespace {

constexpr size_t kSmallestBatch = 8;
constexpr size_t kBatch = 256;  // connections at once: a batch takes some 50 ms
// The kernel sends a SYN-ACK again after a second. A batch that took nearly as long, on a busy
// machine, is run again.
constexpr Duration kSlow = 700ms;
constexpr int kTries = 20;
constexpr int kFillRounds = 8;
constexpr int kMissingRounds = 6;
constexpr int kDrainRounds = 100;
constexpr int kPrinted = 20;

}  // namespace

Run::Connection::Connection(uint64_t seed, uint64_t number, const Tuple& tuple)
    : index(number),
      generator(seed, number),
      guests{Guest(tuple, generator.first()), Guest(tuple, generator.first())} {
  history.server = generator.server();
}

Run::Run(uint64_t seed) : seed_(seed), stack_([this](ByteView packet) { hear(kStack, packet); }) {}

Result<std::unique_ptr<Run>> Run::start(Fd tun, uint64_t seed) {
  std::unique_ptr<Run> run(new Run(seed));
  ASSIGN(run->kernel_, KernelSubject::start(std::move(tun), [r = run.get()](ByteView packet) {
           r->hear(kKernel, packet);
         }));
  return run;
}

Status Run::play(uint64_t first, size_t count, bool show_all) {
  size_t batch = kBatch;
  for (int tries = 0; count > 0;) {
    const size_t some = std::min(count, batch);
    std::vector<Connection> connections;
    Tally tally;
    if (!play_batch(first, some, connections, tally)) {
      ++tally_.disturbed;
      batch = std::max(batch / 2, kSmallestBatch);  // for a slow machine, or a sanitized build
      if (++tries < kTries) continue;
      return fail(Code::kIo, "this machine is too busy: {} batches in a row took over {} ms",
                  kTries, kSlow / 1ms);
    }
    tries = 0;
    tally_.add(tally);
    for (const Connection& each : connections) {
      if (!show_all && (!each.unexplained || printed_ >= kPrinted)) continue;
      ++printed_;
      print(each);
    }
    first += some;
    count -= some;
  }
  return {};
}

// False when it took so long that the kernel's clock has had its say.
bool Run::play_batch(uint64_t first, size_t count, std::vector<Connection>& connections,
                     Tally& tally) {
  guest_.value += 1;
  connections.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Tuple tuple{guest_, kServerIp, static_cast<uint16_t>(kFirstPort + i), 0};
    connections.emplace_back(seed_, first + i, tuple);
  }
  connections_ = &connections;
  stack_.begin(guest_, count);
  kernel_->begin(guest_, count);
  const Instant start = monotonic_now();
  while (step_all(connections)) {
    for (size_t i = 0; i < count; ++i) {
      if (!connections[i].over) judge(i, connections[i], tally);
    }
  }
  const bool in_time = monotonic_now() - start < kSlow;
  for (Connection& each : connections) {
    send(kKernel, each, each.guests[kKernel].make({.flags = flag::kRst}));
  }
  connections_ = nullptr;
  stack_.end();
  kernel_->end();
  tally.scripts += count;
  return in_time;
}

// False when every script is over.
bool Run::step_all(std::vector<Connection>& connections) {
  bool any = false;
  for (size_t i = 0; i < connections.size(); ++i) {
    Connection& each = connections[i];
    if (each.over) continue;
    each.records.emplace_back();
    if (!each.generator.next(view(i, each), each.records.back().step)) {
      each.records.pop_back();
      each.over = true;
      continue;
    }
    any = true;
    start_step(i, each);
  }
  if (!any) return false;
  stack_.settle();
  kernel_->settle();
  fill_windows(connections);
  drain(connections);
  stack_.rest();
  kernel_->rest();
  send_missing(connections);
  return true;
}

View Run::view(size_t i, const Connection& connection) const {
  const Guest& guest = connection.guests[kStack];
  View view;
  view.open = connection.history.open;
  view.gone = stack_.gone(i) && guest.syn_acked();
  view.syn_acked = guest.syn_acked();
  view.host_closed = stack_.closed_by_host(i);
  view.guest_closed = connection.history.guest_fin;
  view.in_flight = static_cast<uint32_t>(guest.sent() - guest.acked());
  return view;
}

void Run::start_step(size_t i, Connection& connection) {
  Record& record = connection.records.back();
  for (const Side side : {kStack, kKernel}) {
    connection.guests[side].begin_step();
    if (record.step.kind == Step::Kind::kSegments) {
      for (const SegmentStep& s : record.step.segments) {
        record.segments[side].push_back(connection.guests[side].make(s));
      }
      for (const Outgoing& s : record.segments[side]) send(side, connection, s);
    } else {
      Subject& subject = side == kStack ? static_cast<Subject&>(stack_) : *kernel_;
      subject.act(i, record.step);
    }
  }
}

void Run::send(Side side, Connection& connection, const Outgoing& segment) {
  Outgoing addressed = segment;
  addressed.tuple.host_port = kServerPorts[static_cast<size_t>(connection.history.server)];
  const Bytes packet = ip_packet(addressed);
  if (side == kStack) stack_.send(packet);
  if (side == kKernel) kernel_->send(packet);
}

// The windows of the two are not of one size, nor do they open by the same steps; both close in the
// end.
void Run::fill_windows(std::vector<Connection>& connections) {
  for (int round = 0; round < kFillRounds; ++round) {
    bool any = false;
    for (Connection& each : connections) {
      if (each.over || each.records.back().step.kind != Step::Kind::kFill) continue;
      for (const Side side : {kStack, kKernel}) {
        for (const Outgoing& segment : each.guests[side].fill(kFillWindow)) {
          send(side, each, segment);
          any = true;
        }
      }
    }
    if (!any) break;
    stack_.settle();
    kernel_->settle();
  }
  // What they have sent meanwhile is acknowledged to both.
  for (Connection& each : connections) {
    if (each.over || each.records.back().step.kind != Step::Kind::kFill) continue;
    for (const Side side : {kStack, kKernel}) {
      Guest& guest = each.guests[side];
      if (guest.syn_acked()) send(side, each, guest.newest_ack(kFillWindow, guest.sent()));
    }
  }
  stack_.settle();
  kernel_->settle();
}

// However differently the two used small windows: with a large one each has sent all in the end.
void Run::drain(std::vector<Connection>& connections) {
  for (int round = 0; round < kDrainRounds; ++round) {
    bool any = false;
    for (Connection& each : connections) {
      if (each.over || each.records.back().step.kind != Step::Kind::kDrain) continue;
      for (const Side side : {kStack, kKernel}) {
        Guest& guest = each.guests[side];
        if (round > 0 && guest.acked() == guest.sent()) continue;
        send(side, each, guest.newest_ack(65535, guest.sent()));
        any = true;
      }
    }
    if (!any) return;
    stack_.settle();
    kernel_->settle();
  }
}

// The kernel keeps what came before its turn, this stack does not. A guest sends it again to who
// has not acknowledged it, and so does this one.
void Run::send_missing(std::vector<Connection>& connections) {
  std::vector<Connection*> behind;
  for (Connection& each : connections) {
    if (!each.over && lag(each) > 0) behind.push_back(&each);
  }
  for (int round = 0; round < kMissingRounds; ++round) {
    bool any = false;
    for (Connection* each : behind) {
      const int32_t behind_by = lag(*each);
      if (behind_by <= 0) continue;
      for (const Outgoing& segment :
           each->guests[kStack].missing(static_cast<uint32_t>(behind_by))) {
        send(kStack, *each, segment);
        each->records.back().segments[kStack].push_back(segment);
        any = true;
      }
    }
    if (!any) break;
    stack_.settle();
  }
  // The stack has heard ACKs and windows that the kernel has not; both hear the latest.
  for (Connection* each : behind) {
    for (const Side side : {kStack, kKernel}) {
      Guest& guest = each->guests[side];
      send(side, *each, guest.newest_ack(guest.window(), guest.acked()));
    }
  }
  if (behind.empty()) return;
  stack_.settle();
  kernel_->settle();
}

// How much more the kernel has acknowledged in this step.
int32_t Run::lag(const Connection& connection) {
  return connection.guests[kKernel].answer().acknowledged -
         connection.guests[kStack].answer().acknowledged;
}

void Run::hear(Side side, ByteView packet) {
  const auto heard = read_packet(packet);
  if (connections_ == nullptr || !heard || heard->heard.tuple.guest_ip != guest_) return;
  const size_t i = static_cast<size_t>(heard->heard.tuple.guest_port - kFirstPort);
  SANDBOX_CHECK(i < connections_->size());
  Connection& connection = (*connections_)[i];
  if (!connection.over) connection.guests[side].hear(*heard);
}

void Run::judge(size_t i, Connection& connection, Tally& tally) {
  Record& record = connection.records.back();
  for (const Side side : {kStack, kKernel}) {
    Guest& guest = connection.guests[side];
    guest.see(side == kStack ? stack_.look(i) : kernel_->look(i));
    record.heard[side] = guest.heard();
    record.subject_first[side] = guest.subject_first();
    tally.segments += record.segments[side].size();
  }
  ++tally.steps;
  const Guest& stack = connection.guests[kStack];
  const Guest& kernel = connection.guests[kKernel];
  History& history = connection.history;
  const Moment moment{
      record.step, record.segments[kStack], record.segments[kKernel], history, stack, kernel};
  uint16_t fields = differences(stack.answer(), kernel.answer());
  const uint16_t all = fields;
  for (const Accepted& each : accepted_differences()) {
    const bool unseen = each.after == After::kEndsUnseen;
    if (((fields & each.fields) == 0 && !unseen) || !each.when(moment)) continue;
    fields &= static_cast<uint16_t>(~each.fields);
    ++tally.accepted[each.name];
    record.note += fmt::format(" [{}]", each.name);
    connection.over = connection.over || each.after != After::kGoesOn;
  }
  const bool right = stack.answer().intact && stack.answer().delivered_right;
  if (!right) record.note += " wrong bytes";
  if (fields != 0 || !right) {
    record.note += fmt::format(" UNEXPLAINED {}", fields_text(fields));
    ++tally.unexplained;
    connection.unexplained = connection.over = true;
  } else if (all != 0) {
    record.note += fmt::format(" ({})", fields_text(all));
  }
  history.learn(record.step.kind, record.segments[kStack], stack_.state(i), stack, kernel);
  history.late_close = stack_.closed_late(i);
}

// --- as text ---

void Run::print(const Connection& connection) const {
  constexpr const char* kNames[] = {"stack ", "kernel"};
  fmt::print(
      "script {} of seed {}, port {} (tcp_differential --seed {} "
      "--script {})\n",
      connection.index, seed_, kServerPorts[static_cast<size_t>(connection.history.server)], seed_,
      connection.index);
  const Seq first = connection.guests[kStack].first();
  for (const Record& record : connection.records) {
    const auto line = [&](Side side, const Outgoing& segment) {
      return text(segment, first, record.subject_first[side]);
    };
    if (record.step.kind != Step::Kind::kSegments) {
      fmt::print("  {}\n", text(record.step.kind, record.step.count));
    }
    for (size_t n = 0; n < record.segments[kStack].size(); ++n) {
      const std::string to_stack = line(kStack, record.segments[kStack][n]);
      fmt::print("  {}", to_stack);
      if (n >= record.segments[kKernel].size()) {
        fmt::print("   (to the stack again)");
      } else if (const std::string to_kernel = line(kKernel, record.segments[kKernel][n]);
                 to_kernel != to_stack) {
        fmt::print("   (to the kernel {})", to_kernel);
      }
      fmt::print("\n");
    }
    for (const Side side : {kStack, kKernel}) {
      for (const Heard& heard : record.heard[side]) {
        fmt::print("      {} {}\n", kNames[side], text(heard, first, record.subject_first[side]));
      }
      if (record.heard[side].empty()) fmt::print("      {} < nothing\n", kNames[side]);
    }
    if (!record.note.empty()) fmt::print("      {}\n", record.note);
  }
  const auto& last = connection.guests;
  fmt::print(
      "  stages: stack {}, kernel {}; delivered in the last step: {} "
      "and {}\n\n",
      name(last[kStack].answer().stage), name(last[kKernel].answer().stage),
      last[kStack].answer().delivered, last[kKernel].answer().delivered);
}

void Tally::add(const Tally& other) {
  scripts += other.scripts;
  steps += other.steps;
  segments += other.segments;
  disturbed += other.disturbed;
  unexplained += other.unexplained;
  for (const auto& [name, count] : other.accepted) accepted[name] += count;
}

}  // namespace sandbox::tcp::differential
