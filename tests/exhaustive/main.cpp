// octavo_exhaustive: what takes too long for the test suite, but not too long to be sure.
//
//     --floats     all 2^32 f32 inputs through quantize, fake-quantize and their backward passes
//     --quotient   the proof of the kernels' quotient (quotient.hpp)
//     --guard      guard pages around every buffer, lengths 0..1024, every alignment
//     --dynamic    dynamic ranges: every small shape, rows to 1024, guard pages (dynamic.hpp)
//     --linear     linear layers (linear.hpp)
//
// With none of these, all of it. Exit code 1 if anything differed.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "dynamic.hpp"
#include "linear.hpp"
#include "ops/elementwise/testing_guard.hpp"
#include "quotient.hpp"
#include "sweep.hpp"
#include "units.hpp"

namespace octavo::exhaustive {
namespace {

std::vector<Unit> quotient_units() {
  constexpr std::uint32_t step = quotient_significands / 64;
  std::vector<Unit> units;
  if (!quotient_supported()) {
    std::puts("SKIPPED --quotient: this CPU has no fused multiply-add");
    return units;
  }
  for (std::uint32_t first = 0; first < quotient_significands; first += step)
    units.push_back({"quotient/" + std::to_string(first / step), 0.5, [first] {
                       Outcome outcome;
                       std::vector<QuotientMismatch> examples;
                       outcome.mismatches = try_quotients(first, first + step, examples);
                       for (const QuotientMismatch& e : examples) {
                         std::ostringstream text;
                         text << std::hexfloat << "quotient: x " << e.x << " s " << e.s
                              << " expected rint(" << e.division << ") got rint(" << e.quotient
                              << ')';
                         outcome.messages.push_back(text.str());
                       }
                       return outcome;
                     }});
  return units;
}

Outcome guard_everything(Target target, Op op) {
  testing::GuardPlan plan;
  plan.max_length = 1024;
  plan.offsets.resize(64);
  std::iota(plan.offsets.begin(), plan.offsets.end(), std::size_t{0});
  Outcome outcome;
  std::string wrong = testing::check_guards(target, op, plan);
  outcome.add(wrong.empty() ? 0 : 1, [&] { return std::move(wrong); });
  return outcome;
}

std::vector<Unit> guard_units() {
  std::vector<Unit> units;
  for (const Target target : own_targets())
    for (const Op op : testing::all_ops) {
      const auto kinds = static_cast<double>(testing::kinds_of(op, Layout::per_tensor).size());
      units.push_back({"guard/" + std::string(name(target)) + "/" + std::string(name(op)),
                       1.7 * kinds, [target, op] { return guard_everything(target, op); }});
    }
  return units;
}

struct Options {
  bool floats = false;
  bool quotient = false;
  bool guard = false;
  bool dynamic = false;
  bool linear = false;
  int pairs = 16;
  int sample = 1;
  RunOptions run{static_cast<int>(std::thread::hardware_concurrency()), ""};
};

int run(const Options& options) {
  const bool all =
      !options.floats && !options.quotient && !options.guard && !options.dynamic && !options.linear;
  std::string targets;
  for (const Target target : own_targets()) targets += " " + std::string(name(target));
  std::printf("targets:%s; %d pairs; %d threads\n", targets.c_str(), options.pairs,
              options.run.threads);
  std::vector<Unit> units;
  const auto append = [&](std::vector<Unit> more) {
    for (std::size_t i = 0; i < more.size(); i += static_cast<std::size_t>(options.sample))
      units.push_back(std::move(more[i]));
  };
  if (all || options.quotient) append(quotient_units());
  if (all || options.guard) append(guard_units());
  if (all || options.dynamic) append(dynamic_units());
  if (all || options.linear) append(linear_units());
  if (all || options.floats) append(sweep_units(options.pairs));
  const std::uint64_t mismatches = run_units(units, options.run);
  std::printf("%llu mismatches\n", static_cast<unsigned long long>(mismatches));
  return mismatches == 0 ? 0 : 1;
}

}  // namespace
}  // namespace octavo::exhaustive

int main(int argc, char** argv) {
  octavo::exhaustive::Options options;
  CLI::App app("All inputs, all alignments: Octavo's kernels against an independent oracle");
  app.add_flag("--floats", options.floats, "all 2^32 f32 inputs");
  app.add_flag("--quotient", options.quotient, "the proof of the kernels' quotient");
  app.add_flag("--guard", options.guard, "guard pages, lengths 0..1024, every alignment");
  app.add_flag("--dynamic", options.dynamic,
               "dynamic ranges: small shapes, rows to 1024, guard pages");
  app.add_flag("--linear", options.linear, "linear layers: all sizes to 64, random ones to 512");
  app.add_option("--pairs", options.pairs, "(scale, zero point) pairs")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--threads", options.run.threads)->check(CLI::Range(1, 1024));
  app.add_option("--state", options.run.state, "a file to resume from, kept up to date");
  app.add_option("--sample", options.sample, "only every N-th unit of the work: a quick look")
      ->check(CLI::Range(1, 1000000));
  CLI11_PARSE(app, argc, argv);
  return octavo::exhaustive::run(options);
}
