#pragma once
// run/NAME/record.json: what a sandbox was, for the commands that look at sandboxes from outside.
// Liveness is not in it: a sandbox runs while the lock run/NAME/lock is held.

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "store/home.h"

namespace sandbox {

struct RunRecord {
  std::string name;
  std::string image;
  std::vector<std::string> command;
  std::vector<std::string> allow;
  std::vector<std::string> deny;
  std::string state;  // running, ended, failed; "running" with a free lock: it was killed
  std::string failure;
  int64_t created_ns = 0;
  int64_t ended_ns = 0;  // 0: not yet
};

Status write_run_record_file(const std::string& run_dir, const RunRecord& record);
Result<RunRecord> read_run_record_file(const std::string& run_dir);

// Creates run/NAME and takes its lock. kExists: it is running.
struct ClaimedRun {
  std::string dir;
  FileLock lock;
};
Result<ClaimedRun> claim_run(const Home& home, const std::string& name);
// A fresh name "STEM-xxxx" that no directory has, claimed.
Result<ClaimedRun> claim_unnamed_run(const Home& home, std::string_view stem, std::string& name);

struct RunEntry {
  std::string name;
  std::string dir;
  bool alive = false;     // its lock is held
  bool leftover = false;  // it was killed: what it held on disk is still there
};
Result<std::vector<RunEntry>> list_runs(const Home& home);

}  // namespace sandbox
