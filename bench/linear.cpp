// Linear layers: from float activations (quantized_linear) and the matrix product alone
// (smoothquant_linear). Two limits: `peak`, the same number of multiplications and additions in
// registers, and `stream`, a read of the weights. A peer quantizes rows by itself or with ours.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "linear_case.hpp"
#include "measuring/limit.hpp"
#include "measuring/peak.hpp"
#include "octavo/octavo.hpp"
#include "peers.hpp"

namespace octavo::bench {
namespace {

constexpr std::array<LinearShape, 10> shapes{{{1, 4096, 4096, 0.6},
                                              {16, 4096, 4096, 0.6},
                                              {128, 4096, 4096, 1.0},
                                              {512, 4096, 4096, 1.5},
                                              {2048, 4096, 4096, 2.0},
                                              {1, 11008, 4096, 0.6},
                                              {128, 11008, 4096, 1.0},
                                              {32, 768, 3072, 0.6},
                                              {128, 384, 1536, 0.6},
                                              {7, 333, 1001, 0.6}}};
// With so many rows the weights are what takes time, and where they come from matters.
constexpr std::int64_t few_rows = 16;
constexpr std::int64_t small_weights = std::int64_t{1} << 20;  // no model is that small

LinearWeights& weights() {
  static LinearWeights shared;
  return shared;
}

// What peers are asked to do. `quantizer` may be null.
octavo_peer_linear peer_problem(const LinearCase& c, const LinearLayer& layer,
                                const RowQuantizer* quantizer) {
  octavo_peer_linear problem{};
  problem.activation = static_cast<int>(c.activation);
  problem.m = c.shape.m;
  problem.n = c.shape.n;
  problem.k = c.shape.k;
  problem.input = layer.input();
  problem.weight = reinterpret_cast<const std::int8_t*>(weights().copies()[0]);
  problem.weight_scales = weights().scales().data();
  problem.act_scale = static_cast<float>(linear_act_scale);
  problem.output = reinterpret_cast<float*>(layer.output());
  problem.copies = static_cast<int>(weights().copies().size());
  problem.threads = c.threads;
  if (quantizer) {
    problem.quantize = [](const void* context, int part) {
      static_cast<const RowQuantizer*>(context)->run(part);
    };
    problem.context = quantizer;
    problem.quantized = quantizer->quantized();
    problem.row_scales = quantizer->scales();
  }
  return problem;
}

// Ours in other ways, so that their ratios are taken in one case: bf16 and f16 against f32, rows
// against packed weights, all threads against one.
std::vector<std::pair<const char*, LinearCase>> variants(const LinearCase& c) {
  std::vector<std::pair<const char*, LinearCase>> others;
  LinearCase other = c;
  if (c.is_whole() && c.activation != DType::f32) {
    other.activation = DType::f32;
    others.emplace_back("f32", other);
  } else if (!c.packed) {
    other.packed = true;
    others.emplace_back("packed", other);
  } else if (c.threads > 1) {
    other.threads = 1;
    others.emplace_back("one_thread", other);
  }
  return others;
}

// Lets all take turns. With cold weights a turn is one round of all copies: the fastest call alone
// might be that of a copy which a cache has kept. Warm ones are brought back into the cache after
// the others' turns, and it takes some calls until it keeps them.
void race_rounds(std::vector<Competitor>& field, const LinearShape& shape, bool quick,
                 int threads) {
  const std::size_t copies = weights().copies().size();
  for (auto& c : field) {
    if (copies == 1 && shape.m <= few_rows) c.warm_up = 4;
    c.run = [run = std::move(c.run), copies] {
      for (std::size_t i = 0; i < copies; ++i) run();
    };
  }
  race(field, shape.seconds, quick, threads > 1);
  for (auto& c : field) c.seconds /= static_cast<double>(copies);
}

void report(benchmark::State& state, const LinearCase& c, const std::vector<Competitor>& field) {
  const double ours = field[0].seconds;
  double stream = std::numeric_limits<double>::infinity();
  for (const auto& other : field) {
    if (other.kind == Kind::peer || other.kind == Kind::variant || other.name == "peak")
      state.counters[other.name] = other.seconds / ours;
    else if (other.kind == Kind::limit)
      stream = std::min(stream, other.seconds);
  }
  if (std::isfinite(stream)) state.counters["stream"] = stream / ours;
  const auto [m, n, k, seconds] = c.shape;
  const std::int64_t bytes = n * k + bytes_for(c.activation, m * k) + bytes_for(c.output(), m * n);
  state.counters["TOPS"] = 1e-12 * static_cast<double>(c.shape.operations()) / ours;
  state.counters["GB/s"] = 1e-9 * static_cast<double>(bytes) / ours;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(ours);
}

void run_case(benchmark::State& state, const LinearCase& c, bool quick) {
  weights().prepare(c.shape.n, c.shape.k, c.cold);
  std::vector<Competitor> field;
  const auto enter = [&](const char* name, Kind kind, const LinearCase& what) {
    auto layer = LinearLayer::make(what, weights());
    if (!layer) {
      state.SkipWithError(layer.error().message().c_str());
      return std::shared_ptr<LinearLayer>();
    }
    field.push_back({.name = name, .kind = kind, .run = [layer = *layer] { layer->run(); }});
    return *layer;
  };
  const auto layer = enter("octavo", Kind::ours, c);
  if (!layer) return;
  for (const auto& [name, other] : variants(c))
    if (!enter(name, Kind::variant, other)) return;

  std::optional<RowQuantizer> quantizer;
  if (c.packed && !c.cap && c.output() == DType::f32) {
    if (c.is_whole()) quantizer.emplace(layer->input(), c.shape.m, c.shape.k, c.threads);
    const auto tasks = peer_tasks(peer_problem(c, *layer, quantizer ? &*quantizer : nullptr));
    layer->run();
    const auto* output = reinterpret_cast<const float*>(layer->output());
    const std::vector<float> expected(output, output + c.shape.m * c.shape.n);
    compare_results(c.name(), expected, tasks);
    for (const auto& task : tasks)
      field.push_back({.name = task.peer->name, .run = [task] { (void)task.run(); }});
  }

  const auto target = c.cap ? c.cap : measuring::fastest_target();
  if (target)
    if (auto limit = measuring::peak(*target, c.shape.operations(), c.threads))
      field.push_back(*std::move(limit));
  if (c.shape.m <= few_rows)
    measuring::add_reads(field, weights().copies(), weights().bytes(), c.threads);
  race_rounds(field, c.shape, quick, c.threads);
  state.SetLabel(std::string(name(layer->target())));
  report(state, c, field);
}

void run_peak(benchmark::State& state, Target target, int threads, bool quick) {
  constexpr std::int64_t operations = 100'000'000;  // short: less comes in between
  std::vector<Competitor> field;
  if (auto limit = measuring::peak(target, operations, threads)) field.push_back(*std::move(limit));
  if (field.empty()) return state.SkipWithError("the CPU has no such instructions");
  race(field, 0.6, quick, threads > 1);
  state.counters["TOPS"] = 1e-12 * static_cast<double>(operations) / field[0].seconds;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(field[0].seconds);
}

void run_stream(benchmark::State& state, const LinearShape& shape, bool cold, int threads,
                bool quick) {
  weights().prepare(shape.n, shape.k, cold);
  std::vector<Competitor> field;
  measuring::add_reads(field, weights().copies(), weights().bytes(), threads);
  race_rounds(field, shape, quick, threads);
  const auto best = std::min_element(field.begin(), field.end(), [](const auto& a, const auto& b) {
    return a.seconds < b.seconds;
  });
  state.SetLabel(best->name);
  state.counters["GB/s"] = 1e-9 * static_cast<double>(weights().bytes()) / best->seconds;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(best->seconds);
}

void add_limit_cases(const Options& options, int threads) {
  const std::string tail = '/' + std::to_string(threads) + 't';
  for (const Target target : available_targets())
    if (measuring::peak(target, 1, 1))
      add_case(
          options, "linear/peak/" + std::string(name(target)) + tail,
          [=, quick = options.quick](benchmark::State& s) { run_peak(s, target, threads, quick); });
  for (const auto& shape : shapes) {
    if (shape.m != 1) continue;
    for (const bool cold : {false, true})
      add_case(options,
               "linear/stream/" + std::string(cold ? "cold/" : "warm/") + shape.name() + tail,
               [=, quick = options.quick](benchmark::State& s) {
                 run_stream(s, shape, cold, threads, quick);
               });
  }
}

void add(const Options& options, const LinearCase& c) {
  add_case(options, c.name(),
           [c, quick = options.quick](benchmark::State& s) { run_case(s, c, quick); });
}

// Cold weights only where they matter most: those that are packed, from f32 and from s8.
void add_shape(const Options& options, const LinearShape& shape, int threads) {
  const bool has_cold = shape.m <= few_rows && shape.n * shape.k > small_weights;
  const LinearCase c{.shape = shape, .threads = threads};
  for (const DType activation : {DType::f32, DType::bf16, DType::f16, DType::s8}) {
    const bool main_type = activation == DType::f32 || activation == DType::s8;
    if (options.quick && !main_type) continue;
    LinearCase other = c;
    other.activation = activation;
    add(options, other);
    other.cold = true;
    if (has_cold && main_type) add(options, other);
  }
  LinearCase rows = c, product = c;
  rows.packed = false;
  add(options, rows);
  if (shape.m != 128 && shape.m != 512) return;
  product.activation = DType::s8;
  for (const Target target : available_targets()) {
    if (!measuring::peak(target, 1, 1)) continue;
    product.cap = target;
    add(options, product);
  }
}

}  // namespace

void add_linear(const Options& options) {
  const int all = Stream::cpu().threads();
  for (int threads = 1; threads <= all; threads += std::max(1, all - 1)) {
    add_limit_cases(options, threads);
    for (const auto& shape : shapes) add_shape(options, shape, threads);
  }
}

}  // namespace octavo::bench
