#include "gateway/host_addresses.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace sandbox::gateway {

namespace {

template <class T>
std::optional<T> read_as(ByteView bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

std::optional<IpAddress> to_address(ByteView bytes) {
  if (bytes.size() == 4) return IpAddress(Ipv4{ByteReader(bytes).be32()});
  if (bytes.size() != 16) return std::nullopt;
  std::array<uint8_t, 16> v6;
  std::ranges::copy(bytes, v6.begin());
  return IpAddress::from_bytes(v6);
}

// IFA_LOCAL is the interface's own address; on a point-to-point link IFA_ADDRESS is the peer's
// (rtnetlink(7)). Both count: whichever it is, no name may lead there.
void read_attributes(ByteView bytes, std::vector<IpAddress>& out) {
  while (const auto attribute = read_as<rtattr>(bytes)) {
    if (attribute->rta_len < sizeof(rtattr) || attribute->rta_len > bytes.size()) return;
    if (attribute->rta_type == IFA_LOCAL || attribute->rta_type == IFA_ADDRESS) {
      const auto address =
          to_address(bytes.subspan(sizeof(rtattr), attribute->rta_len - sizeof(rtattr)));
      if (address) out.push_back(*address);
    }
    bytes = bytes.subspan(std::min<size_t>(RTA_ALIGN(attribute->rta_len), bytes.size()));
  }
}

}  // namespace

AddressMessages parse_address_messages(ByteView bytes, std::vector<IpAddress>& out) {
  using End = AddressMessages::End;
  AddressMessages seen;
  while (const auto header = read_as<nlmsghdr>(bytes)) {
    if (header->nlmsg_len < sizeof(nlmsghdr) || header->nlmsg_len > bytes.size()) break;
    const ByteView body = bytes.subspan(sizeof(nlmsghdr), header->nlmsg_len - sizeof(nlmsghdr));
    if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) {
      seen.end = header->nlmsg_type == NLMSG_DONE ? End::kDone : End::kFailed;
      break;
    }
    if ((header->nlmsg_flags & NLM_F_MULTI) == 0)  // not of a dump: a change that was announced
      seen.changed = true;
    else if (header->nlmsg_type == RTM_NEWADDR && body.size() >= sizeof(ifaddrmsg))
      read_attributes(body.subspan(sizeof(ifaddrmsg)), out);
    bytes = bytes.subspan(std::min<size_t>(NLMSG_ALIGN(header->nlmsg_len), bytes.size()));
  }
  return seen;
}

Result<std::unique_ptr<HostAddresses>> HostAddresses::create() {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return fail_errno(errno, "netlink socket");
  sockaddr_nl local{};
  local.nl_family = AF_NETLINK;
  local.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&local), sizeof local) < 0)
    return fail_errno(errno, "netlink bind");
  return read_from(std::move(socket));
}

Result<std::unique_ptr<HostAddresses>> HostAddresses::read_from(Fd socket) {
  std::unique_ptr<HostAddresses> out(new HostAddresses());
  out->socket_ = std::move(socket);
  do {
    TRY(out->request());
    TRY(out->read_dump());
  } while (out->stale_);
  TRY(set_nonblocking(out->socket_.get(), true));
  return out;
}

Status HostAddresses::request() {
  struct {
    nlmsghdr header;
    ifaddrmsg body;
  } message{};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = RTM_GETADDR;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.body.ifa_family = AF_UNSPEC;
  if (::send(socket_.get(), &message, sizeof message, 0) < 0)
    return fail_errno(errno, "asking the kernel for the host's addresses");
  dumping_ = true;
  stale_ = false;
  dump_.clear();
  return {};
}

Status HostAddresses::read_dump() {
  std::array<uint8_t, 32768> buffer;
  while (dumping_) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "reading the host's addresses");
    if (take_messages({buffer.data(), static_cast<size_t>(got)}) == AddressMessages::End::kFailed)
      return fail(Code::kUnavailable, "the kernel does not tell the host's addresses");
  }
  return {};
}

// The addresses are replaced by a whole dump only: after one that failed the old ones stay
// forbidden.
AddressMessages::End HostAddresses::take_messages(ByteView bytes) {
  using End = AddressMessages::End;
  const AddressMessages seen = parse_address_messages(bytes, dump_);
  stale_ = stale_ || seen.changed;
  if (seen.end == End::kNone || !dumping_) return End::kNone;
  dumping_ = false;
  if (seen.end == End::kDone) addresses_ = std::move(dump_);
  dump_ = {};
  return seen.end;
}

Status HostAddresses::follow(EventLoop& loop, Changed changed) {
  changed_ = std::move(changed);
  return loop.add(socket_.get(), EventLoop::kRead, [this](uint32_t) { on_readable(); });
}

void HostAddresses::on_readable() {
  std::array<uint8_t, 32768> buffer;
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == ENOBUFS) {  // changes were lost: only their being there matters
      stale_ = true;
      continue;
    }
    if (got <= 0) break;
    if (take_messages({buffer.data(), static_cast<size_t>(got)}) == AddressMessages::End::kDone)
      changed_(addresses_);
  }
  if (stale_ && !dumping_) (void)request();  // on failure the next change tries again
}

}  // namespace sandbox::gateway
