#pragma once
// Packet scripts: a conversation with the stack as text, one step a line, on a virtual clock.
//
//   > FLAGS seq=N [ack=N] [len=N] [win=N] [mss=N] [scale=N] [raw=HEX] [bad]
//           [port=N] [to=ADDR] [hostport=N]
//                   the guest sends a segment, then the stack settles; ">>" leaves that to the next
//                   step that settles
//   < FLAGS seq=N [ack=N] [len=N] [win=N] [mss=N] [scale=N] [port=N]
//                   the next packet of the stack, with these fields; without len: no payload
//   < nothing       the stack has sent nothing more
//   < any           whatever it has sent
//   + 10ms          time passes (us, ms, s, min, h), timers run as they come due
//   ! VERB          the owner acts, or the world around changes:
//                   accept, reset, drop, close, abort, flush, connect, read N, write N, settle
//                   manual            leaves the decision on a SYN to a later step
//                   hold, unhold      does not take the bytes of the guest, takes them again
//                   wire N, wire open  the wire takes N packets and no more, takes all again
//                   host EVENT=VERB   does so inside an event
//   ? events NAME…, state NAME, flows N, received N, memory N, deadline none
//
// Flags are the letters S F R P A U, "." for none. Numbers are relative: seq of the guest and ack
// of the stack to the guest's first number, the others to the stack's. The guest's first number is
// just below 2^32, so every script crosses the wrap. A packet of the stack that no step expects
// fails the script, and so does an event left over at its end when it looks at events at all.

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/tcp/stack.h"
#include "unit/net/tcp/packet.h"

namespace sandbox::tcp::testing {

inline constexpr std::string_view kLetters = "FSRPAU";  // in the order of their bits
inline const Ipv4 kGuest{0xc0000002}, kHost{0x5db8d822};

inline std::string flags_text(uint8_t flags) {
  std::string text;
  for (const char letter : std::string_view("SFRPAU")) {
    if ((flags >> kLetters.find(letter) & 1) != 0) text += letter;
  }
  return text.empty() ? "." : text;
}

inline uint8_t flags_of(std::string_view text) {
  uint8_t flags = 0;
  for (const char letter : text) {
    if (letter != '.') flags |= static_cast<uint8_t>(1 << kLetters.find(letter));
  }
  return flags;
}

inline uint64_t number(const std::string& text) {
  return std::stoull(text);
}

inline Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

inline Duration duration_of(const std::string& text) {
  size_t unit = 0;
  const long long n = std::stoll(text, &unit);
  const std::string_view name = std::string_view(text).substr(unit);
  if (name == "us") return std::chrono::microseconds(n);
  if (name == "ms") return std::chrono::milliseconds(n);
  if (name == "s") return std::chrono::seconds(n);
  if (name == "min") return std::chrono::minutes(n);
  return std::chrono::hours(n);
}

inline std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  std::istringstream in{std::string(line)};
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

inline std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

class Script : public Owner, public PacketSink {
 public:
  explicit Script(Config config = {});
  // Empty when everything went as written, else the line and what is wrong with it. A further
  // script goes on where this one ended.
  std::string run(std::string_view text);

  // The byte at `offset` of either stream; different for the two directions.
  static uint8_t guest_byte(uint64_t offset) {
    return static_cast<uint8_t>(offset * 131 + (offset >> 8));
  }
  static uint8_t host_byte(uint64_t offset) {
    return static_cast<uint8_t>(offset * 89 + 7 + (offset >> 9));
  }

 private:
  struct Sent {
    uint16_t port = 0;
    std::string text;  // as after "<"
    std::map<std::string, std::string> fields;
  };
  using Fields = std::map<std::string, std::string>;

  void on_syn(Flow& flow) override;
  void on_established(Flow& flow) override;
  void on_readable(Flow& flow) override;
  void on_guest_fin(Flow& flow) override;
  void on_writable(Flow& flow) override;
  void on_closed(Flow& flow, Close how) override;
  void on_flow_limit(const Tuple& tuple) override;
  std::span<uint8_t> packet_room(size_t size) override;
  void send_packet() override;

  std::string step(std::string_view line);
  std::string guest_sends(const std::string& flags, Fields fields);
  std::string expect(const std::string& flags, const Fields& fields);
  std::string act(const std::string& verb, const std::string& argument);
  std::string check(const std::string& what, const std::vector<std::string>& words);
  void pass(Duration time);
  void settle();
  void event(const std::string& name);
  void read_all(Flow& flow, size_t most);
  std::string write(size_t count);

  static constexpr uint32_t kGuestFirst = 0xffffff00;
  Instant now_{std::chrono::hours(1)};
  Flow* flow_ = nullptr;
  uint32_t our_first_ = 0;
  bool manual_ = false, hold_ = false, events_checked_ = false;
  size_t wire_room_ = SIZE_MAX;
  Bytes buffer_;
  std::deque<Sent> sent_;
  std::vector<std::string> events_;
  std::map<std::string, std::string> reactions_;
  uint64_t received_ = 0, written_ = 0;
  std::string failure_;
  Stack stack_;
};

inline Script::Script(Config config) : stack_(config, *this, *this) {}

inline std::string Script::run(std::string_view text) {
  int count = 0;
  events_checked_ = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++count;
    std::string wrong = step(line);
    if (wrong.empty()) wrong = failure_;
    stack_.check_invariants();
    if (!wrong.empty()) return fmt::format("line {} \"{}\": {}", count, line, wrong);
  }
  if (!sent_.empty()) return "at the end, unexpected: " + sent_.front().text;
  if (events_checked_ && !events_.empty()) return "at the end, not looked at: " + joined(events_);
  return {};
}

inline std::string Script::step(std::string_view line) {
  std::vector<std::string> words = words_of(line);
  if (words.empty() || words[0][0] == '#') return {};
  const std::string kind = words[0];
  if (words.size() < 2) return "a step needs words";
  const std::string verb = words[1];
  if (kind != "<" && kind != "?" && !sent_.empty())
    return "unexpected before: " + sent_.front().text;
  Fields fields;
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    fields[words[i].substr(0, equals)] =
        equals == std::string::npos ? "" : words[i].substr(equals + 1);
  }
  if (kind == ">" || kind == ">>") {
    std::string wrong = guest_sends(verb, fields);
    if (kind == ">") settle();
    return wrong;
  }
  if (kind == "<") return expect(verb, fields);
  if (kind == "+") return pass(duration_of(verb)), std::string();
  if (kind == "!") return act(verb, words.size() > 2 ? words[2] : "");
  if (kind == "?") return check(verb, {words.begin() + 2, words.end()});
  return "no such step";
}

inline std::string Script::guest_sends(const std::string& flags, Fields fields) {
  const auto field = [&](const char* key, uint64_t otherwise) {
    return fields.count(key) != 0 ? number(fields[key]) : otherwise;
  };
  GuestSegment s;
  s.tuple = {kGuest, kHost, static_cast<uint16_t>(field("port", 40000)),
             static_cast<uint16_t>(field("hostport", 443))};
  if (fields.count("to") != 0) s.tuple.host_ip = Ipv4::parse(fields["to"]).value();
  const uint32_t offset =
      static_cast<uint32_t>(fields.count("seq") != 0 ? std::stoll(fields["seq"]) : 0);
  s.seq = kGuestFirst + offset;
  s.ack =
      fields.count("ack") != 0 ? our_first_ + static_cast<uint32_t>(std::stoll(fields["ack"])) : 0;
  s.flags = flags_of(flags);
  s.window = static_cast<uint16_t>(field("win", 65535));
  if (fields.count("mss") != 0) {
    const uint16_t mss = static_cast<uint16_t>(field("mss", 0));
    for (const int b : {2, 4, mss >> 8, mss & 255}) s.options.push_back(static_cast<uint8_t>(b));
  }
  if (fields.count("scale") != 0) {
    for (const int b : {3, 3, static_cast<int>(field("scale", 0))}) {
      s.options.push_back(static_cast<uint8_t>(b));
    }
  }
  if (fields.count("raw") != 0) s.options = from_hex(fields["raw"]);
  for (uint64_t i = 0; i < field("len", 0); ++i) s.payload.push_back(guest_byte(offset - 1 + i));
  Bytes bytes = build(s);
  if (fields.count("bad") != 0) bytes[16] ^= 1;
  stack_.input(s.tuple.guest_ip, s.tuple.host_ip, bytes, now_);
  return {};
}

inline std::string Script::expect(const std::string& flags, const Fields& fields) {
  if (flags == "any") return sent_.clear(), std::string();
  if (flags == "nothing") return sent_.empty() ? "" : "there is " + sent_.front().text;
  if (sent_.empty()) return "nothing was sent";
  const Sent got = sent_.front();
  sent_.pop_front();
  std::map<std::string, std::string> want = fields;
  want["flags"] = flags;
  want.emplace("len", "0");
  for (const auto& [key, value] : want) {
    const auto found = got.fields.find(key);
    if (found == got.fields.end() || found->second != value) return "got " + got.text;
  }
  return {};
}

inline std::string Script::act(const std::string& verb, const std::string& argument) {
  if (verb == "manual") return manual_ = true, std::string();
  if (verb == "hold") return hold_ = true, std::string();
  if (verb == "wire") {
    wire_room_ = argument == "open" ? SIZE_MAX : number(argument);
    if (argument == "open") settle();
    return {};
  }
  if (verb == "settle") return settle(), std::string();
  if (verb == "host") {
    const size_t equals = argument.find('=');
    reactions_[argument.substr(0, equals)] = argument.substr(equals + 1);
    return {};
  }
  if (verb == "connect") {
    flow_ = stack_.connect({kGuest, kHost, 8080, 50000}, now_);
    settle();
    return flow_ != nullptr ? "" : "no flow";
  }
  if (flow_ == nullptr) return "there is no flow";
  if (verb == "accept")
    stack_.accept(*flow_);
  else if (verb == "reset")
    stack_.reset(*std::exchange(flow_, nullptr));
  else if (verb == "drop")
    stack_.drop(*std::exchange(flow_, nullptr));
  else if (verb == "close")
    stack_.shutdown_write(*flow_);
  else if (verb == "abort")
    stack_.abort(*std::exchange(flow_, nullptr));
  else if (verb == "flush")
    stack_.abort(*std::exchange(flow_, nullptr), Stack::Abort::kAfterFlush);
  else if (verb == "unhold")
    hold_ = false, read_all(*flow_, SIZE_MAX);
  else if (verb == "read")
    read_all(*flow_, number(argument));
  else if (verb == "write")
    return write(number(argument));
  else
    return "no such action";
  settle();
  return {};
}

inline std::string Script::check(const std::string& what, const std::vector<std::string>& words) {
  const std::string want = joined(words);
  std::string got;
  if (what == "events")
    events_checked_ = true, got = joined(std::exchange(events_, {}));
  else if (what == "state")
    got = flow_ == nullptr ? "none" : name(flow_->state());
  else if (what == "flows")
    got = std::to_string(stack_.flow_count());
  else if (what == "received")
    got = std::to_string(received_);
  else if (what == "memory")
    got = std::to_string(stack_.ring_memory_used());
  else if (what == "deadline")
    got = stack_.next_deadline() == Instant::never() ? "none" : "some";
  else
    return "no such check";
  return got == want ? "" : "it is \"" + got + "\"";
}

inline void Script::pass(Duration time) {
  const Instant end = now_ + time;
  while (stack_.next_deadline() <= end) {
    now_ = std::max(now_, stack_.next_deadline());
    stack_.on_timer(now_);
    settle();
  }
  now_ = end;
}

inline void Script::settle() {
  stack_.settle(now_);
  stack_.check_invariants();
}

inline std::string Script::write(size_t count) {
  while (count > 0) {
    const WriteSpans room = stack_.tx_room(*flow_);
    if (room.size() == 0) {
      settle();
      return fmt::format("no room for {} more", count);
    }
    const size_t n = std::min(count, room.size());
    for (size_t i = 0; i < n; ++i) {
      (i < room.first.size() ? room.first[i] : room.second[i - room.first.size()]) =
          host_byte(written_++);
    }
    stack_.tx_commit(*flow_, n);
    count -= n;
    // A ring fills up before its bytes leave.
    if (count > 0) settle();
  }
  settle();
  return {};
}

inline void Script::read_all(Flow& flow, size_t most) {
  const ReadSpans spans = stack_.rx(flow);
  const size_t n = std::min(most, spans.size());
  for (size_t i = 0; i < n; ++i) {
    const uint8_t byte =
        i < spans.first.size() ? spans.first[i] : spans.second[i - spans.first.size()];
    if (byte != guest_byte(received_ + i))
      failure_ = fmt::format("byte {} came wrong", received_ + i);
  }
  received_ += n;
  stack_.consume(flow, n);
}

inline void Script::event(const std::string& name) {
  events_.push_back(name);
  const auto reaction = reactions_.find(name);
  if (reaction == reactions_.end() || flow_ == nullptr) return;
  if (reaction->second == "close") stack_.shutdown_write(*flow_);
  if (reaction->second == "abort") stack_.abort(*std::exchange(flow_, nullptr));
  if (reaction->second == "drop") stack_.drop(*std::exchange(flow_, nullptr));
  if (reaction->second == "reset") stack_.reset(*std::exchange(flow_, nullptr));
}

inline void Script::on_syn(Flow& flow) {
  flow_ = &flow;
  received_ = written_ = 0;
  event("syn");
  if (!manual_ && flow_ != nullptr) stack_.accept(flow);
}
inline void Script::on_established(Flow&) {
  event("established");
}
inline void Script::on_readable(Flow& flow) {
  event("readable");
  if (!hold_ && flow_ != nullptr) read_all(flow, SIZE_MAX);
}
inline void Script::on_guest_fin(Flow&) {
  event("fin");
}
inline void Script::on_writable(Flow&) {
  event("writable");
}
inline void Script::on_closed(Flow& flow, Close how) {
  if (&flow == flow_) flow_ = nullptr;
  event(fmt::format("closed:{}", name(how)));
}
inline void Script::on_flow_limit(const Tuple&) {
  event("limit");
}

inline std::span<uint8_t> Script::packet_room(size_t size) {
  if (wire_room_ == 0) return {};
  buffer_.assign(size, 0xee);
  return buffer_;
}

inline void Script::send_packet() {
  if (wire_room_ != SIZE_MAX) --wire_room_;
  const StackSegment s = read_packet(buffer_);
  if (!s.intact) failure_ = "a broken packet was sent";
  if ((s.flags & flag::kSyn) != 0) our_first_ = s.seq;
  Sent sent;
  sent.fields = {{"flags", flags_text(s.flags)},
                 {"seq", std::to_string(static_cast<int32_t>(s.seq - our_first_))},
                 {"ack", std::to_string(static_cast<int32_t>(s.ack - kGuestFirst))},
                 {"len", std::to_string(s.payload.size())},
                 {"win", std::to_string(s.window)},
                 {"mss", std::to_string(s.mss)},
                 {"scale", std::to_string(s.scale)},
                 {"port", std::to_string(s.tuple.guest_port)}};
  for (size_t i = 0; i < s.payload.size(); ++i) {
    if (s.payload[i] != host_byte(s.seq - our_first_ - 1 + i)) failure_ = "wrong payload was sent";
  }
  sent.text = sent.fields["flags"];
  for (const char* key : {"seq", "ack", "len", "win", "mss", "scale", "port"}) {
    sent.text += fmt::format(" {}={}", key, sent.fields[key]);
  }
  sent_.push_back(std::move(sent));
}

}  // namespace sandbox::tcp::testing
