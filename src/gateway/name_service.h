#pragma once
// Gate 1 as a service: a guest's DNS message in, the reply out, and a report of each decision on
// the way. Puts together dns::parse_query, Gates, Resolver and the reply builders; knows no socket.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "gateway/gates.h"
#include "gateway/resolver.h"

namespace sandbox::gateway {

class NameService {
 public:
  enum class Transport { kUdp, kTcp };
  using Reply = std::function<void(Bytes reply)>;  // without the length bytes of TCP
  // One decision. `address` where it concerns one address of an answer (rebinding), absent where it
  // is about the name.
  using Report = std::function<void(const Decision& decision, std::optional<Ipv4> address)>;
  // Sends a question upstream: Resolver::query, or a test's own.
  using Upstream = std::function<void(const dns::Question&, const dns::Flags&, Resolver::Callback)>;
  using Now = std::function<Instant()>;

  // A lookup was refused for want of a rule: true, and `resume` is called later to judge it again,
  // or false, and the refusal stands.
  using Hold = std::function<bool(const policy::HostName& name, std::function<void()> resume)>;

  NameService(Gates& gates, Upstream upstream, Now now, Report report);
  ~NameService();
  NameService(const NameService&) = delete;
  NameService& operator=(const NameService&) = delete;

  void set_hold(Hold hold) { hold_ = std::move(hold); }
  // One message of the guest. `reply` is called at most once: now, later, or never (nothing may be
  // answered to garbage).
  void answer(ByteView message, Transport transport, Reply reply);
  // Looks the names up again for a dial to expired pairs; `done` is called when all have been
  // entered or have failed: later, or at once
  // when there is nothing to ask.
  void renew(const std::vector<policy::HostName>& names, std::function<void()> done);

 private:
  struct Exchange;
  void answer_stand_in(const Exchange& exchange, const policy::HostName& name);
  void deny(const Exchange& exchange, const Decision& decision);
  enum class Asked { kNot, kAnswered };
  void judge(const std::shared_ptr<Exchange>& exchange, Asked asked);
  bool hold(const NameDecision& named, const std::shared_ptr<Exchange>& exchange);
  void forward(const std::shared_ptr<Exchange>& exchange);
  void upstream_answered(Exchange& exchange, const Result<Bytes>& raw);
  void enter(const dns::Question& question, const Result<Bytes>& raw);

  Gates& gates_;
  Upstream upstream_;
  Now now_;
  Report report_;
  Hold hold_;
  std::shared_ptr<bool> alive_;
};

}  // namespace sandbox::gateway
