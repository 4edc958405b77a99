#include "base/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace sandbox {

namespace {

uint32_t to_epoll(uint32_t interest) {
  return (interest & EventLoop::kRead ? static_cast<uint32_t>(EPOLLIN) : 0U) |
         (interest & EventLoop::kWrite ? static_cast<uint32_t>(EPOLLOUT) : 0U);
}

uint32_t from_epoll(uint32_t events) {
  return (events & EPOLLIN ? EventLoop::kRead : 0U) | (events & EPOLLOUT ? EventLoop::kWrite : 0U) |
         (events & (EPOLLHUP | EPOLLERR) ? EventLoop::kHangup : 0U);
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  std::unique_ptr<EventLoop> loop(new EventLoop());
  loop->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_) return fail_errno(errno, "epoll_create1");
  return loop;
}

// The event carries descriptor and generation, so an event of a closed and reused number is
// recognised.
Status EventLoop::add(int fd, uint32_t interest, Handler handler) {
  const uint64_t generation = next_generation_++ & 0xFFFFFFFFU;
  epoll_event event{};
  event.events = to_epoll(interest);
  event.data.u64 = generation << 32 | static_cast<uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
    return fail_errno(errno, "epoll_ctl ADD");
  watches_[fd] = std::make_shared<Watch>(Watch{interest, generation, std::move(handler)});
  return {};
}

void EventLoop::modify(int fd, uint32_t interest) {
  const auto it = watches_.find(fd);
  if (it == watches_.end() || it->second->interest == interest) return;
  it->second->interest = interest;
  epoll_event event{};
  event.events = to_epoll(interest);
  event.data.u64 = it->second->generation << 32 | static_cast<uint32_t>(fd);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) {
  if (watches_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::at(Instant when, std::function<void()> call) {
  const TimerId id = next_timer_++;
  timers_.emplace(std::pair{when, id}, std::move(call));
  timer_times_.emplace(id, when);
  return id;
}

void EventLoop::cancel(TimerId id) {
  const auto it = timer_times_.find(id);
  if (it == timer_times_.end()) return;
  timers_.erase({it->second, id});
  timer_times_.erase(it);
}

void EventLoop::fire_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_ && !stopped_) {
    auto node = timers_.extract(timers_.begin());
    timer_times_.erase(node.key().second);
    node.mapped()();
  }
}

void EventLoop::run() {
  stopped_ = false;
  while (!stopped_) run_once(std::chrono::hours(1));
}

void EventLoop::run_once(Duration at_most) {
  Duration wait = at_most;
  if (!timers_.empty())
    wait = std::clamp(timers_.begin()->first.first - monotonic_now(), Duration(0), at_most);
  // Rounded up: a timer is never early and never spun for.
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait + 999'999ns).count();
  std::array<epoll_event, 256> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(ms));
  now_ = monotonic_now();
  for (int i = 0; i < count && !stopped_; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto it = watches_.find(static_cast<int>(event.data.u64 & 0xFFFFFFFFU));
    if (it == watches_.end() || it->second->generation != event.data.u64 >> 32) continue;
    const std::shared_ptr<Watch> watch = it->second;  // the handler may remove itself
    watch->handler(from_epoll(event.events));
  }
  fire_timers();
  if (idle_) idle_();
}

}  // namespace sandbox
