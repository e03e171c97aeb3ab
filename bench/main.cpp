// octavo_bench: how fast we are, beside the limit of the machine and beside other libraries.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "harness.hpp"
#include "measuring/limit.hpp"
#include "octavo/octavo.hpp"
#include "peers.hpp"
#include "reporter.hpp"

namespace octavo::bench {
namespace {

constexpr const char* usage = R"(usage: octavo_bench [word...] [--quick] [--json FILE] [--list]

Runs the cases whose names contain all of the words as parts, as in
    octavo_bench quantize f32 s8 per_tensor 64M 1t
    octavo_bench linear 1t
    octavo_bench linear groups w4a8 g32 cold
    octavo_bench linear floats bf16
  --quick       an eighth of the time for each case, and only f32 with s8
  --json FILE   write the results, for bench/report.py and bench/plot.py
  --list        name the cases instead
Options that start with --benchmark_ are Google Benchmark's. OCTAVO_BENCH_PEER=dnnl (or torch, xnnpack,
onnxruntime) leaves out the others: with several threads their pools get in each other's way.

Columns: GB/s are bytes read and written, G/s are elements. "limit" is the time of the same loads and
stores without arithmetic over ours (1: as fast as can be), "limit by" which stores were best at
that. A peer's column is its time over ours (2x: ours is twice as fast). "onnx" is the time over that
of profile torch. "run" is what a call costs beside its elements: the time for n elements and for n/2,
extrapolated to none.
Of linear layers, "peak" is the time of as many multiplications and additions in registers over ours,
"stream" that of reading the weights; "f32", "packed", "int8", "w4a8", "rows", "f64" and "one thread"
are the times of ours in that way over this one; "run" is what a call costs beside its outputs,
likewise. Weights are warm (the same in every call) or cold (not in any cache).
)";

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string text; std::getline(info, text);)
    if (text.starts_with("model name")) return text.substr(text.find(':') + 2);
  return "unknown CPU";
}

// Says it on the screen and in the JSON file.
void state_fact(const std::string& key, const std::string& value) {
  std::printf("%-12s %s\n", (key + ':').c_str(), value.c_str());
  benchmark::AddCustomContext(key, value);
}

void state_facts() {
  const int threads = Stream::cpu().threads();
  state_fact("cpu", cpu_name());
  state_fact("threads", std::to_string(threads));
  std::string targets;
  for (const auto target : available_targets()) targets.append(name(target)).append(" ");
  state_fact("targets", targets);
  state_fact("limit", measuring::limit_target());
  for (const auto& peer : peers())
    state_fact(peer.name, peer.entry ? peer.entry->version : "absent: " + peer.why);
  std::printf("\n");
}

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "octavo_bench: %s\n%s", message.c_str(), usage);
  std::exit(2);
}

// What is not ours is left for Google Benchmark.
Options parse(const std::vector<std::string>& arguments, std::vector<std::string>& rest) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& a = arguments[i];
    if (a == "--help" || a == "-h") {
      std::fputs(usage, stdout);
      std::exit(0);
    } else if (a == "--quick") {
      options.quick = true;
    } else if (a == "--list") {
      options.list = true;
    } else if (a == "--json") {
      if (++i == arguments.size()) stop("--json needs the name of a file");
      rest.push_back("--benchmark_out=" + arguments[i]);
      rest.emplace_back("--benchmark_out_format=json");
    } else if (a.starts_with("--benchmark_")) {
      rest.push_back(a);
    } else if (a.starts_with("-")) {
      stop("no such option: " + a);
    } else {
      options.words.push_back(a);
    }
  }
  return options;
}

int run(int argc, char** argv) {
  std::vector<std::string> rest{argv[0]};
  const Options options = parse({argv + 1, argv + argc}, rest);
  std::vector<char*> pointers(rest.size());
  std::transform(rest.begin(), rest.end(), pointers.begin(),
                 [](auto& text) { return text.data(); });
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;

  if (!options.list) state_facts();
  add_elementwise(options);
  add_dynamic_range(options);
  add_observer(options);
  add_linear(options);
  add_linear_group(options);
  if (options.list) return 0;
  Reporter reporter;
  if (benchmark::RunSpecifiedBenchmarks(&reporter)) return 0;
  std::fputs("octavo_bench: no case has all of these words; --list names the cases\n", stderr);
  return 1;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char** argv) { return octavo::bench::run(argc, argv); }
