#include "gateway/questions.h"

#include <algorithm>

namespace sandbox::gateway {

namespace {

void call(const std::vector<Questions::Resume>& waiting) {
  for (const auto& resume : waiting) resume();
}

}  // namespace

void Questions::set_on(bool on) {
  on_ = on;
  while (!on_ && !held_.empty()) call(take(held_.begin()));
}

bool Questions::hold(const policy::HostPattern& rule, std::string text, Resume resume,
                     Instant now) {
  if (!on_ || lately_refused(rule, now)) return false;
  const auto same =
      std::ranges::find_if(held_, [&](const Held& held) { return held.question.rule == rule; });
  if (same != held_.end()) {
    if (same->waiting.size() >= kMaxWaiting) return false;
    same->waiting.push_back(std::move(resume));
    return true;
  }
  if (held_.size() >= kMaxHeld) return false;
  held_.push_back({{next_id_++, rule, std::move(text)}, now + kPatience, {}});
  held_.back().waiting.push_back(std::move(resume));
  events_.asked(held_.back().question);
  return true;
}

std::optional<Questions::Answered> Questions::answer(uint64_t id, bool allow, Instant now) {
  const auto it =
      std::ranges::find_if(held_, [id](const Held& held) { return held.question.id == id; });
  if (it == held_.end()) return std::nullopt;
  const policy::HostPattern rule = it->question.rule;
  if (!allow) remember_refusal(rule, now);
  return Answered{rule, take(it)};
}

void Questions::reconsider(const std::function<bool(const policy::HostPattern&)>& decided) {
  std::vector<Resume> waiting;
  for (auto it = held_.begin(); it != held_.end();) {
    const auto each = it++;
    if (!decided(each->question.rule)) continue;
    auto more = take(each);
    std::ranges::move(more, std::back_inserter(waiting));
  }
  call(waiting);
}

void Questions::expire(Instant now) {
  std::erase_if(refused_, [now](const Refused& each) { return each.until <= now; });
  std::vector<Resume> waiting;
  while (!held_.empty() && held_.front().until <= now) {
    remember_refusal(held_.front().question.rule, now);
    auto more = take(held_.begin());
    std::ranges::move(more, std::back_inserter(waiting));
  }
  call(waiting);
}

Instant Questions::next_deadline() const {
  return held_.empty() ? Instant::never() : held_.front().until;
}

bool Questions::lately_refused(const policy::HostPattern& rule, Instant now) const {
  return std::ranges::any_of(
      refused_, [&](const Refused& each) { return each.rule == rule && each.until > now; });
}

void Questions::remember_refusal(const policy::HostPattern& rule, Instant now) {
  if (refused_.size() >= kMaxRefused) refused_.pop_front();
  refused_.push_back({rule, now + kRefused});
}

std::vector<Questions::Resume> Questions::take(List::iterator held) {
  std::vector<Resume> waiting = std::move(held->waiting);
  const uint64_t id = held->question.id;
  held_.erase(held);
  events_.over(id);
  return waiting;
}

}  // namespace sandbox::gateway
