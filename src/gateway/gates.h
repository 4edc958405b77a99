#pragma once
// The gates: every decision about names, addresses and streams is made here, and nothing else is.
// Pure: bytes that were parsed and a time come in, decisions go out; no socket, no clock.
//
//   gate 1  query()     may this name be looked up? (before anything goes upstream)
//           resolved()  which addresses of the answer are vouched for
//   gate 2  dial()      may this address be connected to? Gives the Flow the next gate asks about
//   gate 3  dial()      with kIcmp and port 0
//   gate 4  hello(), unreadable(), request(), malformed(), opaque()   the name on the stream
//           rejudge()   all of it again, after the policy was replaced
//
// A Flow holds its pairs of the ledger (see Ledger::Hold): destroying it releases them.
//
// A dial to an address whose pairs have all expired is not yet refused: DialDecision::renew names
// what to look up again. The caller does, hands the answers to resolved(), and dials once more with
// Attempt::kRenewed.
//
// Mixed answers: only the bad address is refused, and it is not in the reply that the guest gets: a
// client that was handed it would try it first and fail. When every address is refused, so is the
// query, with the reason.
//
// What a person allows once is a grant: an allow rule that holds for lookups and dials until one
// connection has come to be by it, or for 30 s. That connection keeps it to its end (Flow::once);
// deny rules win over it as over any other.
//
// With an upstream proxy, names that go through it are never looked up: stand_in() gives each an
// address of its own, and dial() says what the proxy is to be asked for. What has no TCP connection
// cannot go through it and is refused.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "gateway/ledger.h"
#include "gateway/stand_ins.h"
#include "gateway/upstream_proxy.h"
#include "net/dns/message.h"
#include "net/http/request_head.h"
#include "net/tls/client_hello.h"
#include "policy/policy.h"

namespace sandbox::gateway {

enum class ShownBy { kNothing, kServerName, kHostHeader };

// Everything an audit record says about a decision; protocol, address and port are the caller's.
struct [[nodiscard]] Decision {
  bool allow = false;
  policy::Reason reason = policy::Reason::kNoAllowRule;
  std::string rule = {};                     // text of the rule that decided, may be empty
  std::vector<policy::HostName> names = {};  // vouched for the address, or the name asked
  std::string subject = {};  // what was judged: name asked, SNI, Host; escaped, may be empty
  ShownBy shown_by = ShownBy::kNothing;  // what the subject of a stream was read from
  std::string text = {};  // for people: "www.example.org is not allowed (no-allow-rule)"
  std::string via = {};   // of an allowed dial or query: the proxy that it goes through
  std::string hint =
      {};  // the flag that would allow it, "--allow www.example.org:443"; may be empty
};

enum class NameAction {
  kForward,         // ask upstream
  kRefuse,          // denied, with the decision's text
  kNoData,          // allowed name, but a type we answer ourselves with nothing: AAAA
  kPrivateReverse,  // PTR of private space
  kHostInternal,    // A of host.internal: answer with Config::gateway
  kStandIn,         // A of a name that the upstream proxy resolves: answer with stand_in()
};

struct NameDecision {
  Decision decision;
  NameAction action = NameAction::kRefuse;
};

struct Resolved {
  Decision
      decision;  // of the reply as a whole; a denial when an alias is denied or no address was left
  std::vector<Ipv4> vouched;  // entered in the ledger; the guest may see these and no others
  struct Refused {
    Ipv4 address;
    Decision
        decision;  // reason rebinding (or flow-limit: the ledger is full and every entry in use)
  };
  std::vector<Refused> refused;
};

// An open or half-open flow as the gates see it. Movable, owned by whoever owns the connection.
struct Flow {
  policy::Protocol protocol = policy::Protocol::kTcp;
  IpAddress address;  // as the guest dialled it
  uint16_t port = 0;
  std::string rule;  // that allowed the dial
  bool server_first =
      false;  // pass server bytes before the client has shown a name (plain/ and well-known ports)
  bool proxy = false;                     // a proxy/ rule: absolute-form and CONNECT are expected
  std::optional<http::Authority> tunnel;  // target of the CONNECT last allowed
  std::optional<http::Authority> shown;   // what the stream last showed and was allowed for
  bool shown_to_proxy = false;  // it is where the proxy takes it, not where it was dialled
  Ledger::Hold hold;
  // Allowed by a grant: that rule, and the policy with it, which is the one this flow is held to.
  std::optional<policy::HostPattern> grant;
  std::shared_ptr<const policy::Policy> once;
};

enum class Attempt { kFirst, kRenewed };

// Added to the text of a refusal that a person was asked about.
inline constexpr std::string_view kAskedInVain = "; it was asked about, and not allowed";

struct DialDecision {
  Decision decision;
  // Where to connect: the address dialled, or the host's loopback for host.internal.
  IpAddress connect_to;
  // Not decided: look these up again, then dial with kRenewed. decision is the denial that holds if
  // that is not done.
  std::vector<policy::HostName> renew;
  // Connect to the upstream proxy instead, and ask it for this.
  std::optional<http::Authority> through_proxy;
  // The client has other addresses of the same name to fall back to, so connect should time out
  // sooner.
  bool has_alternatives = false;
  Flow flow;  // only when allowed
};

class Gates {
 public:
  struct Config {
    std::vector<IpAddress> host_addresses;  // of every interface of the host
    Ipv4 gateway;  // our own address in the guest's network; stands for host.internal
    std::optional<UpstreamProxy> proxy = {};
  };
  Gates(policy::Policy policy, Config config)
      : policy_(std::move(policy)), granted_(policy_), config_(config) {
    set_host_addresses(std::move(config.host_addresses));
  }

  NameDecision query(const dns::Question& question) const;
  // `chain`: further names the question is an alias of. A name in it that is no host name denies
  // nothing and allows nothing.
  Resolved resolved(const policy::HostName& question, std::span<const policy::HostName> chain,
                    std::span<const dns::AddressRecord> answers, Instant now);

  // The address for a query that is answered with kStandIn, entered in the ledger. nullopt: the
  // ledger is full and every entry in use.
  std::optional<Ipv4> stand_in(const policy::HostName& name, Instant now) {
    return stand_ins_.vouch(ledger_, name, now);
  }

  DialDecision dial(policy::Protocol protocol, const IpAddress& address, uint16_t port, Instant now,
                    Attempt attempt = Attempt::kFirst);

  Decision hello(Flow& flow, const tls::Hello& hello, Instant now);
  Decision unreadable(const Flow& flow, std::string_view why) const;
  Decision request(Flow& flow, const http::Request& request, Instant now);
  // A request that cannot be read one way only, see http::RequestReader.
  Decision malformed(const Flow& flow, std::string_view why) const;
  // The first bytes are neither TLS nor HTTP: the dial was the decision, except on 443.
  Decision opaque(const Flow& flow) const;
  Decision rejudge(Flow& flow, Instant now);

  // Ask: the allow rule for want of which a lookup or a TCP dial is refused now; nullopt where it
  // is allowed, refused for another reason, or would still be refused with that rule. Never an
  // address of the host, loopback or link-local, and host.internal only for one more port where a
  // rule names it already: such a rule is written by hand.
  [[nodiscard]] std::optional<policy::HostPattern> missing_rule(const policy::HostName& name) const;
  [[nodiscard]] std::optional<policy::HostPattern> missing_rule(const IpAddress& address,
                                                                uint16_t port, Instant now);
  // Do the rules say by now what is to be of a question about `missing`?
  [[nodiscard]] bool has_decided(const policy::HostPattern& missing) const;
  static constexpr Duration kGrantLife = std::chrono::seconds(30);
  void grant(const policy::HostPattern& rule, Instant now);
  // A connection of this flow has come to be: a grant it stands on is used up for others.
  void used(const Flow& flow);
  // Grants that nothing has used in time.
  void expire_grants(Instant now);
  [[nodiscard]] Instant next_grant_end() const;

  void replace_policy(policy::Policy policy);
  void set_host_addresses(std::vector<IpAddress> all);
  [[nodiscard]] const policy::Policy& policy() const { return policy_; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] Ipv4 gateway() const { return config_.gateway; }
  [[nodiscard]] const std::optional<UpstreamProxy>& proxy() const { return config_.proxy; }

 private:
  [[nodiscard]] bool is_host_internal(const Flow& flow) const {
    return flow.address == IpAddress(config_.gateway);
  }
  struct Grant {
    policy::HostPattern rule;
    Instant until;
  };
  DialDecision dial_by(const policy::Policy& rules, policy::Protocol protocol,
                       const IpAddress& address, uint16_t port, Instant now, Attempt attempt);
  static DialDecision dial_host_internal(const policy::Policy& rules, policy::Protocol protocol,
                                         uint16_t port, Ipv4 gateway);
  [[nodiscard]] static bool expiry_decides(const policy::Policy& rules, const policy::Dial& dial,
                                           std::span<const policy::HostName> expired);
  // What this flow is held to.
  [[nodiscard]] const policy::Policy& rules_of(const Flow& flow) const {
    return flow.once ? *flow.once : policy_;
  }
  void renew_granted();
  [[nodiscard]] bool resolved_by_proxy(const policy::HostName& name) const {
    return config_.proxy && !config_.proxy->bypass.matches(name);
  }
  [[nodiscard]] bool is_stand_in(const IpAddress& address) const {
    return config_.proxy && StandIns::in_pool(address);
  }
  [[nodiscard]] bool goes_through_proxy(const IpAddress& address,
                                        std::span<const policy::HostName> names) const;
  void route_through_proxy(const policy::Dial& dial, policy::Verdict& verdict,
                           DialDecision& out) const;
  std::vector<policy::HostName> names_at(const Flow& flow, Instant now);
  static std::vector<policy::HostName> held_names(const Flow& flow);
  policy::Verdict by_address(const Flow& flow) const;
  policy::Verdict nameless(const Flow& flow, policy::Reason refusal, std::string_view why) const;
  static policy::Verdict judge_proxied(const policy::Policy& rules, const http::Authority& target);
  policy::Verdict judge_direct(const Flow& flow, const http::Authority& shown,
                               policy::Reason refusal, Instant now);
  policy::Verdict judge_request(const Flow& flow, const http::Request& request,
                                const std::optional<http::Authority>& asked, Instant now);
  Decision stream_decision(const Flow& flow, const policy::Verdict& verdict, ShownBy by,
                           const std::optional<http::Authority>& shown, Instant now);

  policy::Policy policy_;
  std::vector<Grant> grants_;  // the oldest first
  policy::Policy granted_;     // policy_ with the grants
  Config config_;
  std::vector<IpAddress> out_of_bounds_;  // the host's addresses, its proxy's, and our own
  Ledger ledger_;
  StandIns stand_ins_;
};

}  // namespace sandbox::gateway
