#pragma once
// One thread's event loop: epoll for descriptors, a heap for timers. Level-triggered. Everything is
// called from run().
//
// Handlers may add, change and remove any descriptor or timer, their own included; a removed
// handler is not called again, even when its event was already collected in the same round.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace sandbox {

class EventLoop {
 public:
  static constexpr uint32_t kRead = 1;
  static constexpr uint32_t kWrite = 2;
  static constexpr uint32_t kHangup = 4;  // delivered always: peer closed or error
  using Handler = std::function<void(uint32_t ready)>;
  using TimerId = uint64_t;

  static Result<std::unique_ptr<EventLoop>> create();

  // The descriptor is borrowed: remove() it before closing it.
  Status add(int fd, uint32_t interest, Handler handler);
  void modify(int fd, uint32_t interest);  // no system call when nothing changes
  void remove(int fd);
  [[nodiscard]] bool watches(int fd) const { return watches_.contains(fd); }

  TimerId at(Instant when, std::function<void()> call);
  TimerId after(Duration delay, std::function<void()> call) {
    return at(now() + delay, std::move(call));
  }
  void cancel(TimerId id);

  // Called once at the end of each round that handled something: the place to flush what handlers
  // queued.
  void on_idle(std::function<void()> call) { idle_ = std::move(call); }

  void run();                       // until stop()
  void run_once(Duration at_most);  // one round
  void stop() { stopped_ = true; }

  // The time at which the current round began; monotonic, refreshed after each wait.
  [[nodiscard]] Instant now() const { return now_; }

 private:
  struct Watch {
    uint32_t interest;
    uint64_t generation;
    Handler handler;
  };
  EventLoop() = default;
  void fire_timers();

  Fd epoll_;
  std::unordered_map<int, std::shared_ptr<Watch>> watches_;
  std::map<std::pair<Instant, TimerId>, std::function<void()>> timers_;
  std::unordered_map<TimerId, Instant> timer_times_;
  std::function<void()> idle_;
  uint64_t next_generation_ = 1;
  TimerId next_timer_ = 1;
  Instant now_ = monotonic_now();
  bool stopped_ = false;
};

}  // namespace sandbox
