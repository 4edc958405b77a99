#include "audit/record_sink.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

namespace sandbox::audit {

Result<std::unique_ptr<RecordSink>> RecordSink::create(EventLoop& loop, Fd fd) {
  TRY(set_nonblocking(fd.get(), true));
  std::unique_ptr<RecordSink> sink(new RecordSink(loop, std::move(fd)));
  RecordSink* self = sink.get();
  TRY(loop.add(self->fd_.get(), 0, [self](uint32_t ready) { self->ready(ready); }));
  return sink;
}

RecordSink::~RecordSink() {
  if (timer_ != 0) loop_.cancel(timer_);
  if (!broken_) loop_.remove(fd_.get());
}

void RecordSink::ready(uint32_t ready) {
  if ((ready & EventLoop::kWrite) != 0) flush();
  if ((ready & EventLoop::kHangup) != 0 && !broken_) broke();
}

void RecordSink::broke() {
  broken_ = true;
  loop_.remove(fd_.get());
  queue_.clear();
  queued_bytes_ = 0;
  if (on_broken_) on_broken_();
}

void RecordSink::write(Record record) {
  std::vector<Record> passed;
  limiter_.offer(std::move(record), loop_.now(), passed);
  send_all(passed);
  arm();
}

void RecordSink::finish() {
  std::vector<Record> passed;
  limiter_.finish(passed);
  send_all(passed);
}

void RecordSink::send_all(const std::vector<Record>& records) {
  for (const Record& record : records) enqueue(to_json(record));
  flush();
}

void RecordSink::enqueue(std::string message) {
  if (broken_) return;
  if (queued_bytes_ + message.size() > kMaxQueued) {
    ++lost_;
    ++total_lost_;
    return;
  }
  queued_bytes_ += message.size();
  queue_.push_back(std::move(message));
}

void RecordSink::flush() {
  while (!broken_ && !queue_.empty()) {
    if (!send_one(queue_.front())) break;
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
  }
  if (!broken_ && queue_.empty() && lost_ > 0) report_loss();
  if (!broken_) loop_.modify(fd_.get(), queue_.empty() && lost_ == 0 ? 0 : EventLoop::kWrite);
}

// After the records that were queued when it happened, so the count stands where the gap is.
void RecordSink::report_loss() {
  Record loss;
  loss.kind = Kind::kLost;
  loss.count = lost_;
  loss.text = "the recorder did not keep up";
  if (send_one(to_json(loss))) lost_ = 0;
}

// False: not now, or never again (broken_).
bool RecordSink::send_one(const std::string& message) {
  for (;;) {
    if (::send(fd_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
      return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) return false;
    if (errno == EMSGSIZE) {  // the socket's buffer is smaller than this record
      ++lost_;
      ++total_lost_;
      return true;
    }
    broke();
    return false;
  }
}

// One timer, at the limiter's next deadline.
void RecordSink::arm() {
  const Instant next = broken_ ? Instant::never() : limiter_.next_deadline();
  if (next == timer_at_) return;
  if (timer_ != 0) loop_.cancel(timer_);
  timer_ = 0;
  timer_at_ = next;
  if (next == Instant::never()) return;
  timer_ = loop_.at(next, [this] {
    timer_ = 0;
    timer_at_ = Instant::never();
    std::vector<Record> passed;
    limiter_.expire(loop_.now(), passed);
    send_all(passed);
    arm();
  });
}

}  // namespace sandbox::audit
