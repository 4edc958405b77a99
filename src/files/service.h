#pragma once
// The process around the servers: the port on one side, one Server per share on the other, one
// thread, one loop.
//
// Requests are answered in the order of arrival. What the guest does not take waits in memory up to
// kMaxWaiting; above that the port is not read until it has drained, so a guest that never reads
// stops itself. Changes of the host are not read either in that time; what the kernel then drops is
// made up for by a full comparison (see Tree).

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "files/server.h"
#include "files/transport.h"

namespace sandbox::files {

struct ShareConfig {
  uint32_t id = 0;
  std::string path;
  bool read_only = false;
};

struct Config {
  uint32_t uid = 1000;
  uint32_t gid = 1000;
  std::vector<ShareConfig> shares;
};

// docs/processes.md, sandbox-files. Unknown keys are errors.
Result<Config> parse_config(std::string_view json);

// A request that no correct guest kernel sends, answered with an error.
struct Refusal {
  uint32_t share = 0;
  std::string operation;
  std::string detail;  // printable
};

class Service {
 public:
  static constexpr size_t kMaxWaiting = 8U << 20;

  // Opens every share. `descriptors` is how many the process may have open.
  static Result<std::unique_ptr<Service>> create(EventLoop& loop, Fd port, const Config& config,
                                                 size_t descriptors);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void on_refusal(std::function<void(Refusal)> call) { on_refusal_ = std::move(call); }
  // The port ended, or the guest broke the protocol. Nothing is read any more.
  void on_end(std::function<void(Error)> call) { on_end_ = std::move(call); }
  // From here on bytes of the guest are read.
  Status begin();

 private:
  Service(EventLoop& loop, Fd port);
  void on_port(uint32_t ready);
  bool read_port();
  // Answers until nothing is left or the port is congested; false: the wire has ended.
  bool answer_waiting();
  void on_host_change(uint32_t share);
  void flush();
  void end(Error error);
  void set_interest();
  [[nodiscard]] bool congested() const { return out_.size() - sent_ > kMaxWaiting; }

  // Appends one framed message written by `write(Bytes&)`; nothing if it wrote nothing.
  template <class Write>
  auto framed(uint32_t share, Write&& write);

  EventLoop& loop_;
  Fd port_;
  Decoder decoder_;
  Bytes input_;
  Bytes out_;
  size_t sent_ = 0;
  bool ended_ = false;
  bool left_waiting_ = false;  // the decoder may hold whole messages
  std::unordered_map<uint32_t, std::unique_ptr<Server>> servers_;
  std::function<void(Refusal)> on_refusal_;
  std::function<void(Error)> on_end_;
};

}  // namespace sandbox::files
