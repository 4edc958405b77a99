#pragma once
// Plays scripts to both subjects side by side, many connections at once, and counts what came of
// it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "differential/comparison.h"
#include "differential/kernel_subject.h"
#include "differential/stack_subject.h"

namespace sandbox::tcp::differential {

struct Tally {
  uint64_t scripts = 0, steps = 0, segments = 0;
  uint64_t disturbed = 0;    // batches that were too slow for the kernel's clock, and run again
  uint64_t unexplained = 0;  // scripts
  std::map<std::string, uint64_t> accepted;  // by name

  void add(const Tally& other);
};

class Run {
 public:
  // In the namespace of `tun`.
  static Result<std::unique_ptr<Run>> start(Fd tun, uint64_t seed);
  // Scripts first…first+count-1. Unexplained differences are printed, at most a few.
  Status play(uint64_t first, size_t count, bool show_all);
  [[nodiscard]] const Tally& tally() const { return tally_; }

 private:
  explicit Run(uint64_t seed);
  struct Record {
    Step step;
    std::vector<Outgoing> segments[2];
    std::vector<Heard> heard[2];
    Seq subject_first[2];
    std::string note;
  };
  struct Connection {
    Connection(uint64_t seed, uint64_t index, const Tuple& tuple);
    uint64_t index;
    Generator generator;
    Guest guests[2];  // of the stack, of the kernel
    History history;
    std::vector<Record> records;
    bool over = false;
    bool unexplained = false;
  };
  enum Side : size_t { kStack, kKernel };

  bool play_batch(uint64_t first, size_t count, std::vector<Connection>& connections, Tally& tally);
  bool step_all(std::vector<Connection>& connections);
  void start_step(size_t i, Connection& connection);
  void fill_windows(std::vector<Connection>& connections);
  void drain(std::vector<Connection>& connections);
  void send_missing(std::vector<Connection>& connections);
  static int32_t lag(const Connection& connection);
  void send(Side side, Connection& connection, const Outgoing& segment);
  void judge(size_t i, Connection& connection, Tally& tally);
  View view(size_t i, const Connection& connection) const;
  void hear(Side side, ByteView packet);
  void print(const Connection& connection) const;

  uint64_t seed_;
  StackSubject stack_;
  std::unique_ptr<KernelSubject> kernel_;
  Ipv4 guest_{0x0A000001};
  std::vector<Connection>* connections_ = nullptr;
  Tally tally_;
  int printed_ = 0;
};

}  // namespace sandbox::tcp::differential
