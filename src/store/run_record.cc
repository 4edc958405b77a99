#include "store/run_record.h"

#include <sys/random.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"

namespace sandbox {

namespace {

using nlohmann::json;

std::string lock_path(const std::string& dir) {
  return dir + "/lock";
}

}  // namespace

Status write_run_record_file(const std::string& run_dir, const RunRecord& record) {
  json j = {{"name", record.name},
            {"image", record.image},
            {"command", record.command},
            {"allow", record.allow},
            {"deny", record.deny},
            {"state", record.state},
            {"created", format_rfc3339(record.created_ns)}};
  if (record.ended_ns != 0) j["ended"] = format_rfc3339(record.ended_ns);
  if (!record.failure.empty()) j["failure"] = record.failure;
  return write_file_atomic(run_dir + "/record.json",
                           j.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

Result<RunRecord> read_run_record_file(const std::string& run_dir) {
  ASSIGN(const std::string text, read_file(run_dir + "/record.json", 8U << 20));
  try {
    const json j = json::parse(text);
    RunRecord record;
    record.name = j.at("name");
    record.image = j.at("image");
    record.command = j.at("command").get<std::vector<std::string>>();
    record.allow = j.at("allow").get<std::vector<std::string>>();
    record.deny = j.at("deny").get<std::vector<std::string>>();
    record.state = j.at("state");
    record.created_ns = parse_rfc3339(j.at("created").get<std::string>());
    if (j.contains("ended")) record.ended_ns = parse_rfc3339(j["ended"].get<std::string>());
    record.failure = j.value("failure", "");
    return record;
  } catch (const json::exception&) {
    return fail(Code::kInvalid, "{}/record.json is not the record of a sandbox", run_dir);
  }
}

Result<ClaimedRun> claim_run(const Home& home, const std::string& name) {
  ASSIGN(std::string dir, home.run_dir(name));
  TRY(make_private_dir(dir));
  auto lock = FileLock::try_acquire(lock_path(dir));
  if (lock) return ClaimedRun{std::move(dir), std::move(*lock)};
  if (lock.error().code != Code::kExists) return fail(std::move(lock.error()));
  return fail(Error{Code::kExists, fmt::format("sandbox '{}' is already running, use exec", name),
                    "choose another --name, or leave it out"});
}

Result<ClaimedRun> claim_unnamed_run(const Home& home, std::string_view stem, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    uint8_t random[2] = {};
    if (::getrandom(random, sizeof random, 0) != sizeof random)
      return fail_errno(errno, "getrandom");
    name = fmt::format("{}-{}", stem, to_hex(random));
    ASSIGN(const std::string dir, home.run_dir(name));
    if (std::filesystem::exists(dir)) continue;
    auto claimed = claim_run(home, name);
    if (claimed || claimed.error().code != Code::kExists) return claimed;
  }
  return fail(Error{Code::kLimit, "no free sandbox name was found", "give one with --name"});
}

Result<std::vector<RunEntry>> list_runs(const Home& home) {
  ASSIGN(const std::string runs, home.runs_dir());
  std::vector<RunEntry> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runs, error)) {
    RunEntry run;
    run.name = entry.path().filename().string();
    run.dir = entry.path().string();
    if (!entry.is_directory()) continue;
    const auto lock = FileLock::try_acquire(lock_path(run.dir));
    run.alive = !lock && lock.error().code == Code::kExists;
    const auto record = read_run_record_file(run.dir);
    run.leftover = !run.alive && (!record || record->state == "running" ||
                                  std::filesystem::exists(run.dir + "/disk.qcow2"));
    out.push_back(std::move(run));
  }
  if (error) return fail(Code::kIo, "{}: {}", runs, error.message());
  std::sort(out.begin(), out.end(),
            [](const RunEntry& a, const RunEntry& b) { return a.name < b.name; });
  return out;
}

}  // namespace sandbox
