#pragma once
// Ask: what was refused for want of a rule waits here while a person is asked about it.
//
// A question is named by the allow rule that would let it pass; equal ones are one question,
// however many lookups and connections wait for it. Those who wait are called back when it is over,
// whatever the answer, and ask the gates again: the answer is what the gates say then.
//
// Limits: 32 questions, 64 waiting for one; beyond that the refusal stands at once. No answer in
// 30 s is a no. A rule that was refused, or not answered, is not asked about again for 60 s (256 of
// them are remembered): clients try again, people should not have to.
//
// Pure; time comes in.

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "policy/host_pattern.h"

namespace sandbox::gateway {

class Questions {
 public:
  static constexpr size_t kMaxHeld = 32;
  static constexpr size_t kMaxWaiting = 64;
  static constexpr Duration kPatience = std::chrono::seconds(30);
  static constexpr Duration kRefused = std::chrono::seconds(60);
  static constexpr size_t kMaxRefused = 256;

  struct Question {
    uint64_t id;
    policy::HostPattern rule;
    std::string text;  // what the sandbox wants, for people: "look up www.example.org"
  };
  struct Events {
    std::function<void(const Question&)> asked;
    std::function<void(uint64_t id)> over;  // answered, expired, or decided otherwise
  };
  using Resume = std::function<void()>;

  explicit Questions(Events events) : events_(std::move(events)) {}

  // Is there anybody to ask? Off is how it begins; going off ends every question.
  void set_on(bool on);
  [[nodiscard]] bool on() const { return on_; }

  // True: `resume` will be called, never from in here. False: the refusal stands.
  bool hold(const policy::HostPattern& rule, std::string text, Resume resume, Instant now);
  // Ends the question; the caller puts in force what the answer means and then calls those who
  // waited. nullopt: there is none of that id.
  struct Answered {
    policy::HostPattern rule;
    std::vector<Resume> waiting;
  };
  std::optional<Answered> answer(uint64_t id, bool allow, Instant now);
  // Ends those that the rules decide by now.
  void reconsider(const std::function<bool(const policy::HostPattern&)>& decided);
  void expire(Instant now);
  [[nodiscard]] Instant next_deadline() const;
  [[nodiscard]] size_t held() const { return held_.size(); }

 private:
  struct Held {
    Question question;
    Instant until;
    std::vector<Resume> waiting;
  };
  using List = std::list<Held>;  // the oldest first
  struct Refused {
    policy::HostPattern rule;
    Instant until;
  };
  [[nodiscard]] bool lately_refused(const policy::HostPattern& rule, Instant now) const;
  void remember_refusal(const policy::HostPattern& rule, Instant now);
  std::vector<Resume> take(List::iterator held);

  Events events_;
  bool on_ = false;
  uint64_t next_id_ = 1;
  List held_;
  std::list<Refused> refused_;  // the oldest first
};

}  // namespace sandbox::gateway
