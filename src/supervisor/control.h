#pragma once
// What may be changed about a running sandbox, and how: the requests of the control socket, put to
// the gateway. It holds what is in force; nothing is in force that the gateway has not agreed to.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "supervisor/control_messages.h"
#include "supervisor/control_server.h"
#include "supervisor/gateway_link.h"

namespace sandbox {

class Control {
 public:
  static constexpr size_t kMaxPublished = 256;
  // More than a gateway that keeps to its own limit asks at once.
  static constexpr size_t kMaxQuestions = 64;
  static constexpr size_t kMaxQuestionText = 1024;
  // A running gateway takes its rules in one message.
  static constexpr size_t kMaxRuleBytes = 128 * 1024;
  struct Rules {
    std::vector<std::string> allow;
    std::vector<std::string> deny;
  };
  struct Events {
    std::function<void(std::string_view)> note;         // a line of the audit log
    std::function<Status(const Rules&)> rules_changed;  // these are in force now
  };
  using Published = std::function<void(const Result<control::Port>&)>;
  using Changed = std::function<void(const Result<std::vector<std::string>>&)>;

  // `rules` are those the gateway was started with.
  Control(GatewayLink& gateway, Rules rules, Events events)
      : gateway_(gateway), rules_(std::move(rules)), events_(std::move(events)) {
    gateway_.on_event([this](const control::Event& event) { asked_or_over(event); });
  }

  void handle(const control::Request& request, std::vector<Fd> descriptors,
              const ControlServer::Client& from);
  // `listener` is a listening TCP socket; where it listens is asked of the socket itself.
  void publish(Fd listener, uint16_t guest, Published done);
  // All of them in one step, or none; tells which were new. `who` is for the audit log.
  void add_rules(control::AddRules rules, std::string who, Changed done);

 private:
  using Client = ControlServer::Client;
  void asked_or_over(const control::Event& event);
  void tell_questions(const Client& client);
  void client_left(const Client& client);
  void take_answer(const control::Answer& wanted, const Client& from);
  void tell_gateway(uint64_t id, bool allow, GatewayLink::Done done);
  void unpublish(const control::Unpublish& wanted, const Client& from);

  struct Change {
    control::AddRules rules;
    std::string who;
    Changed done;
  };
  void next_change();
  void apply(const Change& change);

  GatewayLink& gateway_;
  Rules rules_;
  Events events_;
  std::deque<Change> changes_;  // the first is with the gateway, when `changing_`
  bool changing_ = false;
  std::map<uint64_t, control::Port> published_;  // by the id that the gateway knows them by
  uint64_t next_id_ = 1;
  std::map<uint64_t, control::Asked> questions_;  // those that are open
  std::vector<Client> told_;                      // who is told of them
};

}  // namespace sandbox
