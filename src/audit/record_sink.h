#pragma once
// RecordSink: where a process leaves its records. Each becomes one SOCK_SEQPACKET message to the
// recorder; never blocks.
//
// What the recorder does not take at once waits in a queue of 1 MiB; beyond that records are
// counted and the count is sent as a record of its own when there is room again. A sink whose
// recorder is gone is broken: the process should refuse new work, the supervisor ends the sandbox.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "audit/limiter.h"
#include "audit/record.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace sandbox::audit {

class RecordSink {
 public:
  static constexpr size_t kMaxQueued = 1 << 20;

  // Makes the descriptor non-blocking. The loop outlives the sink.
  static Result<std::unique_ptr<RecordSink>> create(EventLoop& loop, Fd fd);
  ~RecordSink();
  RecordSink(const RecordSink&) = delete;
  RecordSink& operator=(const RecordSink&) = delete;

  void write(Record record);
  // Sends everything that waits for a window to end, then what fits. Call before exit.
  void finish();
  // Called once, from the loop or from inside write(), when the recorder is gone.
  void on_broken(std::function<void()> call) { on_broken_ = std::move(call); }
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] uint64_t lost() const { return total_lost_; }

 private:
  RecordSink(EventLoop& loop, Fd fd) : loop_(loop), fd_(std::move(fd)) {}
  void ready(uint32_t ready);
  void broke();
  void send_all(const std::vector<Record>& records);
  void enqueue(std::string message);
  void flush();
  void report_loss();
  bool send_one(const std::string& message);
  void arm();

  EventLoop& loop_;
  Fd fd_;
  Limiter limiter_;
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;
  uint64_t lost_ = 0;  // not yet reported
  uint64_t total_lost_ = 0;
  EventLoop::TimerId timer_ = 0;
  Instant timer_at_ = Instant::never();
  std::function<void()> on_broken_;
  bool broken_ = false;
};

}  // namespace sandbox::audit
