// tcp_differential: random segment scripts to the gateway's TCP and to the kernel's, answers
// compared.
//
//   tcp_differential [--scripts N] [--seed N] [--script INDEX]
//
// Prints the scripts whose answers differ in a way that comparison.cc does not explain, as one line
// a segment, and exits with 1 then. A script is named by the seed of the run and its index;
// --script plays that one alone and shows all of it. Exits with 77 where there can be no network
// namespace or TUN device.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>

#include "differential/run.h"

namespace sandbox::tcp::differential {
namespace {

constexpr int kSkipped = 77;

void report(const Tally& tally, Duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  for (const Accepted& each : accepted_differences()) {
    const auto found = tally.accepted.find(each.name);
    fmt::print("{:>9} accepted: {}\n", found == tally.accepted.end() ? 0 : found->second,
               each.name);
  }
  fmt::print(
      "{} scripts, {} steps, {} segments in {:.1f} s ({:.0f} "
      "scripts/s); {} slow batches run "
      "again; "
      "{} scripts with an unexplained difference\n",
      tally.scripts, tally.steps, tally.segments, seconds,
      static_cast<double>(tally.scripts) / seconds, tally.disturbed, tally.unexplained);
}

int run(uint64_t seed, uint64_t first, size_t count, bool show) {
  auto tun = enter_namespace();
  if (!tun) {
    fmt::print(stderr, "tcp_differential: {}\n", tun.error().message);
    return tun.error().code == Code::kUnavailable ? kSkipped : 1;
  }
  auto play = Run::start(std::move(*tun), seed);
  if (!play) {
    fmt::print(stderr, "tcp_differential: {}\n", play.error().message);
    return 1;
  }
  fmt::print("seed {}\n", seed);
  const Instant start = monotonic_now();
  if (const Status done = (*play)->play(first, count, show); !done) {
    fmt::print(stderr, "tcp_differential: {}\n", done.error().message);
    return 1;
  }
  report((*play)->tally(), monotonic_now() - start);
  return (*play)->tally().unexplained == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sandbox::tcp::differential

int main(int argc, char** argv) {
  CLI::App app("Compares the gateway's TCP with the kernel's");
  size_t scripts = 10'000;
  uint64_t seed = std::random_device()();
  std::optional<uint64_t> only;
  app.add_option("--scripts", scripts, "how many")->capture_default_str();
  app.add_option("--seed", seed, "of the run (random)");
  app.add_option("--script", only, "play this one alone and show it");
  CLI11_PARSE(app, argc, argv);
  using sandbox::tcp::differential::run;
  if (only) return run(seed, *only, 1, true);
  return run(seed, 0, scripts, false);
}
