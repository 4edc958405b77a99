// Each message is a map with the keys 1..n, all present, in order. That is CBOR which any tool can
// print, and it leaves a decoder nothing to decide: MapWriter and MapReader count the keys, and a
// key out of turn is a violation.
#include "channel/messages.h"

#include <algorithm>

#include "channel/cbor.h"

namespace sandbox::channel {
namespace {

class MapWriter {
 public:
  MapWriter(CborWriter& out, size_t pairs) : out_(out) { out_.map(pairs); }
  CborWriter& key() {
    out_.number(++last_);
    return out_;
  }

 private:
  CborWriter& out_;
  uint64_t last_ = 0;
};

class MapReader {
 public:
  MapReader(CborReader& in, size_t pairs) : in_(in) {
    if (in_.map() != pairs) in_.fail();
  }
  CborReader& key() {
    ++last_;
    (void)in_.number(last_, last_);
    return in_;
  }

 private:
  CborReader& in_;
  uint64_t last_ = 0;
};

// Limits of lists, well above any use; the frame size bounds their bytes.
constexpr size_t kMaxShares = 64;
constexpr size_t kMaxStrings = 65536;

void write_strings(CborWriter& out, const std::vector<std::string>& values) {
  out.array(values.size());
  for (const std::string& value : values) out.text(value);
}

std::vector<std::string> read_strings(CborReader& in) {
  const size_t count = in.array();
  if (count > kMaxStrings) in.fail();
  std::vector<std::string> values;
  for (size_t i = 0; i < count && in.ok(); ++i) values.push_back(in.c_text());
  return values;
}

std::string read_absolute(CborReader& in) {
  std::string path = in.c_text();
  if (!path.starts_with('/')) in.fail();
  return path;
}

template <size_t N>
void read_array(CborReader& in, std::array<uint8_t, N>& out) {
  const ByteView bytes = in.bytes();
  if (bytes.size() != N) return in.fail();
  std::copy(bytes.begin(), bytes.end(), out.begin());
}

void write(CborWriter& out, const Network& network) {
  MapWriter map(out, 6);
  map.key().bytes(network.mac);
  map.key().number(network.address.value);
  map.key().number(network.prefix);
  map.key().number(network.gateway.value);
  map.key().number(network.dns.value);
  map.key().number(network.mtu);
}

Network read_network(CborReader& in) {
  Network network;
  MapReader map(in, 6);
  read_array(map.key(), network.mac);
  network.address.value = static_cast<uint32_t>(map.key().number(0, UINT32_MAX));
  network.prefix = static_cast<uint8_t>(map.key().number(0, 32));
  network.gateway.value = static_cast<uint32_t>(map.key().number(0, UINT32_MAX));
  network.dns.value = static_cast<uint32_t>(map.key().number(0, UINT32_MAX));
  network.mtu = static_cast<uint32_t>(map.key().number(576, 65535));
  return network;
}

void write(CborWriter& out, const Share& share) {
  MapWriter map(out, 4);
  map.key().number(share.id);
  map.key().text(share.path);
  map.key().boolean(share.read_only);
  map.key().boolean(share.single_file);
}

Share read_share(CborReader& in) {
  Share share;
  MapReader map(in, 4);
  share.id = static_cast<uint32_t>(map.key().number(1, 65535));
  share.path = read_absolute(map.key());
  share.read_only = map.key().boolean();
  share.single_file = map.key().boolean();
  return share;
}

void write(CborWriter& out, const Link& link) {
  MapWriter map(out, 2);
  map.key().text(link.path);
  map.key().text(link.target);
}

Link read_link(CborReader& in) {
  Link link;
  MapReader map(in, 2);
  link.path = read_absolute(map.key());
  link.target = map.key().c_text();
  return link;
}

void write(CborWriter& out, const Account& account) {
  MapWriter map(out, 4);
  map.key().text(account.name);
  map.key().number(account.uid);
  map.key().number(account.gid);
  map.key().text(account.home);
}

Account read_account(CborReader& in) {
  Account account;
  MapReader map(in, 4);
  account.name = map.key().c_text();
  account.uid = static_cast<uint32_t>(map.key().number(0, UINT32_MAX - 1));
  account.gid = static_cast<uint32_t>(map.key().number(0, UINT32_MAX - 1));
  account.home = read_absolute(map.key());
  return account;
}

// Optional parts are an array of none or one.
template <class T>
void write_optional(CborWriter& out, const std::optional<T>& value) {
  out.array(value ? 1 : 0);
  if (value) write(out, *value);
}

template <class T>
std::optional<T> read_optional(CborReader& in, T (*read)(CborReader&)) {
  const size_t count = in.array();
  if (count > 1) in.fail();
  if (count != 1) return std::nullopt;
  return read(in);
}

template <class T>
void write_list(CborWriter& out, const std::vector<T>& values) {
  out.array(values.size());
  for (const T& value : values) write(out, value);
}

template <class T>
std::vector<T> read_list(CborReader& in, T (*read)(CborReader&)) {
  const size_t count = in.array();
  if (count > kMaxShares) in.fail();
  std::vector<T> values;
  for (size_t i = 0; i < count && in.ok(); ++i) values.push_back(read(in));
  return values;
}

tl::unexpected<Error> malformed(std::string_view what) {
  return fail(Code::kProtocol, "channel: a malformed {} message", what);
}

}  // namespace

Bytes encode(const Hello& m) {
  CborWriter out;
  MapWriter map(out, 3);
  map.key().number(m.version);
  map.key().text(m.sentry);
  map.key().text(m.kernel);
  return out.take();
}

Result<Hello> decode_hello(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 3);
  Hello m;
  m.version = static_cast<uint32_t>(map.key().number(0, UINT32_MAX));
  m.sentry = map.key().c_text();
  m.kernel = map.key().c_text();
  if (!in.done()) return malformed("hello");
  return m;
}

Bytes encode(const ResumeRequest& m) {
  CborWriter out;
  MapWriter map(out, 12);
  map.key().bytes(m.entropy);
  map.key().number(m.wall_ns);
  map.key().number(m.nonce);
  map.key().text(m.hostname);
  write_optional(map.key(), m.network);
  map.key().text(m.disk);
  map.key().number(m.disk_bytes);
  write_list(map.key(), m.shares);
  write_list(map.key(), m.links);
  write_optional(map.key(), m.account);
  map.key().number(static_cast<uint64_t>(m.profile));
  map.key().text(m.host_roots);
  return out.take();
}

Result<ResumeRequest> decode_resume(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 12);
  ResumeRequest m;
  read_array(map.key(), m.entropy);
  m.wall_ns = map.key().number(0, INT64_MAX);
  m.nonce = map.key().number(0, UINT64_MAX);
  m.hostname = map.key().c_text();
  m.network = read_optional(map.key(), read_network);
  m.disk = map.key().c_text();
  m.disk_bytes = map.key().number(0, INT64_MAX);
  m.shares = read_list(map.key(), read_share);
  m.links = read_list(map.key(), read_link);
  m.account = read_optional(map.key(), read_account);
  m.profile =
      static_cast<Profile>(map.key().number(0, static_cast<uint64_t>(Profile::kPrivileged)));
  m.host_roots = map.key().c_text();
  if (!in.done()) return malformed("resume");
  return m;
}

Bytes encode(const Ready& m) {
  CborWriter out;
  MapWriter map(out, 2);
  map.key().number(m.nonce);
  write_strings(map.key(), m.warnings);
  return out.take();
}

Result<Ready> decode_ready(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 2);
  Ready m;
  m.nonce = map.key().number(0, UINT64_MAX);
  m.warnings = read_strings(map.key());
  if (!in.done()) return malformed("ready");
  return m;
}

Bytes encode(const ErrorReport& m) {
  CborWriter out;
  MapWriter map(out, 1);
  map.key().text(m.text);
  return out.take();
}

Result<ErrorReport> decode_error(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 1);
  ErrorReport m;
  m.text = map.key().text();
  if (!in.done()) return malformed("error");
  return m;
}

Bytes encode(const Clock& m) {
  CborWriter out;
  MapWriter map(out, 1);
  map.key().number(m.wall_ns);
  return out.take();
}

Result<Clock> decode_clock(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 1);
  Clock m;
  m.wall_ns = map.key().number(0, INT64_MAX);
  if (!in.done()) return malformed("clock");
  return m;
}

Bytes encode(const Shutdown& m) {
  CborWriter out;
  MapWriter map(out, 1);
  map.key().number(m.grace_ms);
  return out.take();
}

Result<Shutdown> decode_shutdown(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 1);
  Shutdown m;
  m.grace_ms = static_cast<uint32_t>(map.key().number(0, 600000));
  if (!in.done()) return malformed("shutdown");
  return m;
}

Bytes encode(const ExecRequest& m) {
  CborWriter out;
  MapWriter map(out, 8);
  write_strings(map.key(), m.argv);
  write_strings(map.key(), m.env);
  map.key().text(m.cwd);
  map.key().text(m.user);
  map.key().boolean(m.tty);
  map.key().number(m.size.rows);
  map.key().number(m.size.columns);
  map.key().boolean(m.detached);
  return out.take();
}

Result<ExecRequest> decode_exec(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 8);
  ExecRequest m;
  m.argv = read_strings(map.key());
  m.env = read_strings(map.key());
  m.cwd = read_absolute(map.key());
  m.user = map.key().c_text();
  m.tty = map.key().boolean();
  m.size.rows = static_cast<uint16_t>(map.key().number(0, UINT16_MAX));
  m.size.columns = static_cast<uint16_t>(map.key().number(0, UINT16_MAX));
  m.detached = map.key().boolean();
  if (!in.done() || m.argv.empty()) return malformed("exec");
  return m;
}

Bytes encode(const Exit& m) {
  CborWriter out;
  MapWriter map(out, 3);
  map.key().number(m.code);
  map.key().number(m.signal);
  map.key().text(m.error);
  return out.take();
}

Result<Exit> decode_exit(ByteView payload) {
  CborReader in(payload);
  MapReader map(in, 3);
  Exit m;
  m.code = static_cast<uint8_t>(map.key().number(0, UINT8_MAX));
  m.signal = static_cast<uint8_t>(map.key().number(0, 64));
  m.error = map.key().text();
  if (!in.done()) return malformed("exit");
  return m;
}

Status check_size(const Bytes& payload) {
  if (payload.size() <= kMaxPayload) return {};
  return fail(Error{Code::kLimit, "arguments and environment are larger than 1 MiB",
                    "pass large values through a file or through standard input"});
}

}  // namespace sandbox::channel
