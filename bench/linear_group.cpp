// Linear layers with weights in groups, of four bits and of eight, and of floats, from f32 to f32.
// Beside them, in the same case: a read of as many bytes as the packed weights have ("stream"), the
// peak of the machine for as many multiplications, the layer of int8, and the peers.
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
#include "linear_group_case.hpp"
#include "measuring/limit.hpp"
#include "measuring/peak.hpp"
#include "octavo/octavo.hpp"
#include "peers.hpp"

namespace octavo::bench {
namespace {

constexpr std::array<LinearShape, 14> shapes{{{1, 1536, 576, 0.4},
                                              {1, 4096, 4096, 0.6},
                                              {4, 4096, 4096, 0.6},
                                              {16, 4096, 4096, 0.6},
                                              {64, 4096, 4096, 0.8},
                                              {126, 4096, 4096, 1.0},
                                              {128, 4096, 4096, 1.0},
                                              {512, 4096, 4096, 1.5},
                                              {1, 11008, 4096, 0.6},
                                              {16, 11008, 4096, 0.6},
                                              {64, 11008, 4096, 0.8},
                                              {126, 11008, 4096, 1.0},
                                              {128, 11008, 4096, 1.0},
                                              {512, 11008, 4096, 1.5}}};
// With so many rows the weights are what takes time, and where they come from matters.
constexpr std::int64_t few_rows = 16;
// Of so few weights what a call costs beside them is measured too.
constexpr std::int64_t small_weights = std::int64_t{1} << 20;

// Those who take turns, and how often each works in one. A turn of cold weights is one round of all
// copies: the fastest call alone might be that of a copy which a cache has kept.
class Field {
 public:
  void add(Competitor competitor, std::size_t rounds) {
    if (rounds > 1)
      competitor.run = [run = std::move(competitor.run), rounds] {
        for (std::size_t i = 0; i < rounds; ++i) run();
      };
    all_.push_back(std::move(competitor));
    rounds_.push_back(rounds);
  }

  // Warm weights are brought back into the cache after the others' turns, which takes some calls.
  void race(const GroupCase& c, bool quick) {
    if (!c.cold && c.shape.m <= few_rows)
      for (auto& competitor : all_) competitor.warm_up = 4;
    bench::race(all_, c.shape.seconds, quick, c.threads > 1);
    for (std::size_t i = 0; i < all_.size(); ++i)
      all_[i].seconds /= static_cast<double>(rounds_[i]);
  }

  [[nodiscard]] const std::vector<Competitor>& all() const { return all_; }

 private:
  std::vector<Competitor> all_;
  std::vector<std::size_t> rounds_;
};

// What a case works on, kept from case to case.
struct Memory {
  Buffer input, output, reads;
};
Memory& memory() {
  static Memory kept;
  return kept;
}

struct Operands {
  const std::byte* input;
  std::byte* output;
};
Operands operands_for(const LinearShape& shape) {
  std::byte* input = memory().input.reserve(bytes_for(DType::f32, shape.m * shape.k));
  fill_random(input, DType::f32, shape.m * shape.k, 1);
  return {input, memory().output.reserve(bytes_for(DType::f64, shape.m * shape.n))};
}

Result<GroupLayer> layer_for(const GroupCase& c, const Operands& operands) {
  const auto weights = std::make_shared<GroupWeights>();
  weights->prepare(c);
  if (c.rows) return GroupLayer::make(c, weights, operands.input, operands.output);
  auto packed = weights->pack_all(c);
  if (!packed) return packed.error();
  return GroupLayer::make(c, *std::move(packed), operands.input, operands.output);
}

// Ours in other ways, whose times over that of the case are its counters: int8 with a scale for
// each output channel, W4A8 beside activations of 16 bits, f32 beside shorter floats, weights that
// are not packed, an output of f64, one thread beside all of them, half of the outputs of a small
// layer.
std::vector<std::pair<const char*, GroupCase>> variants(const GroupCase& c) {
  std::vector<std::pair<const char*, GroupCase>> others;
  const auto add = [&](const char* name, auto&& change) {
    change(others.emplace_back(name, c).second);
  };
  if (!c.scheme.is_float())
    add("int8", [](GroupCase& other) {
      other.scheme = w8a8;
      other.group = 0;
    });
  if (c.scheme.quantized == DType::s16)
    add("w4a8", [](GroupCase& other) {
      other.scheme = w4a8;
      if (other.group == 0) other.group = other.shape.k % 128 == 0 ? 128 : 32;
    });
  if (c.scheme.is_float() && c.scheme.weight != DType::f32)
    add("f32", [](GroupCase& other) { other.scheme = f32_weights; });
  // (One sort of each is enough.)
  const bool once = !c.cold && c.threads == 1 && (c.group == 128 || c.scheme.weight == DType::f32);
  if (once && c.scheme.quantized != DType::s16)
    add("rows", [](GroupCase& other) { other.rows = true; });
  if (once && c.scheme.weight == DType::s4 && c.scheme.quantized == DType::s8)
    add("f64", [](GroupCase& other) { other.output = DType::f64; });
  if (c.threads > 1) add("one_thread", [](GroupCase& other) { other.threads = 1; });
  if (!c.cold && c.shape.n * c.shape.k <= small_weights)
    add("half", [](GroupCase& other) { other.shape.n /= 2; });
  return others;
}

std::vector<PeerTask> peer_tasks_of(const GroupCase& c, const Operands& operands, int copies) {
  GroupWeights weights;
  weights.prepare(c);
  const auto [m, n, k, seconds] = c.shape;
  const auto* input = reinterpret_cast<const float*>(operands.input);
  auto* output = reinterpret_cast<float*>(operands.output);
  if (c.scheme.is_float()) {
    const std::vector<float> floats = weights.floats(c);
    auto tasks = peer_tasks(octavo_peer_floats{.m = m,
                                               .n = n,
                                               .k = k,
                                               .input = input,
                                               .weight = floats.data(),
                                               .output = output,
                                               .copies = copies,
                                               .threads = c.threads});
    name_absent("linear/floats", {"torch", "dnnl"}, tasks);
    return tasks;
  }
  if (c.group == 0) return {};
  auto tasks = peer_tasks(octavo_peer_groups{.m = m,
                                             .n = n,
                                             .k = k,
                                             .group = c.group,
                                             .bits = bits(c.scheme.weight),
                                             .wide = c.scheme.quantized == DType::s16,
                                             .input = input,
                                             .weight = weights.rows(),
                                             .scales = weights.wide_scales().data(),
                                             .output = output,
                                             .copies = copies,
                                             .threads = c.threads});
  name_absent("linear/groups/" + std::string(c.scheme.name), {"torch", "onnxruntime"}, tasks);
  return tasks;
}

// The same multiplications in registers. Those of 16 by 8 bits count as two of 8 by 8: instructions
// for them do half as many.
std::optional<Competitor> peak_of(const GroupCase& c) {
  const auto target = measuring::fastest_target();
  if (!target) return std::nullopt;
  if (c.scheme.is_float()) return measuring::float_peak(*target, c.shape.operations(), c.threads);
  const std::int64_t each = c.scheme.quantized == DType::s16 ? 2 : 1;
  return measuring::peak(*target, each * c.shape.operations(), c.threads);
}

void add_stream(Field& field, const GroupCase& c, std::int64_t bytes, std::size_t copies) {
  constexpr std::int64_t line = 64;
  const std::int64_t stride = (bytes + line - 1) / line * line;
  const std::byte* data = memory().reads.reserve(stride * static_cast<std::int64_t>(copies));
  std::vector<const std::byte*> places;
  for (std::size_t i = 0; i < copies; ++i)
    places.push_back(data + static_cast<std::int64_t>(i) * stride);
  std::vector<Competitor> reads;
  measuring::add_reads(reads, places, bytes, c.threads);
  for (auto& read : reads) field.add(std::move(read), copies);
}

void report(benchmark::State& state, const GroupCase& c, const std::vector<Competitor>& field,
            std::int64_t bytes) {
  const double ours = field[0].seconds;
  double stream = std::numeric_limits<double>::infinity();
  for (const auto& other : field) {
    // Time is linear in the outputs, so this is what a call costs for none at all.
    if (other.name == "half")
      state.counters["run_ns"] = 1e9 * (2 * other.seconds - ours);
    else if (other.kind == Kind::peer || other.kind == Kind::variant || other.name == "peak")
      state.counters[other.name] = other.seconds / ours;
    else if (other.kind == Kind::limit)
      stream = std::min(stream, other.seconds);
  }
  if (std::isfinite(stream)) state.counters["stream"] = stream / ours;
  state.counters["TOPS"] = 1e-12 * static_cast<double>(c.shape.operations()) / ours;
  state.counters["GB/s"] = 1e-9 * static_cast<double>(bytes) / ours;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(ours);
}

void run_case(benchmark::State& state, const GroupCase& c, bool quick) {
  const Operands operands = operands_for(c.shape);
  Field field;
  const auto enter = [&](const char* name, Kind kind, const Result<GroupLayer>& layer) {
    if (!layer) {
      state.SkipWithError(layer.error().message().c_str());
      return false;
    }
    field.add({.name = name, .kind = kind, .run = [layer = *layer] { layer.run(); }},
              layer->copies());
    return true;
  };
  const auto ours = layer_for(c, operands);
  if (!enter("octavo", Kind::ours, ours)) return;
  for (const auto& [name, other] : variants(c)) {
    const bool same_weights = other.threads != c.threads;
    const auto layer =
        same_weights ? GroupLayer::make(other, ours->packed(), operands.input, operands.output)
                     : layer_for(other, operands);
    if (!enter(name, Kind::variant, layer)) return;
  }

  const std::size_t copies = ours->packed().size();
  const auto tasks = peer_tasks_of(c, operands, static_cast<int>(copies));
  ours->run();
  const auto* output = reinterpret_cast<const float*>(operands.output);
  const std::vector<float> expected(output, output + c.shape.m * c.shape.n);
  compare_results(c.name(), expected, tasks);
  for (const auto& task : tasks)
    field.add({.name = task.peer->name, .run = [task] { (void)task.run(); }}, copies);

  if (auto limit = peak_of(c)) field.add(*std::move(limit), 1);
  if (c.shape.m <= few_rows) add_stream(field, c, ours->bytes(), copies);
  field.race(c, quick);
  state.SetLabel(std::string(name(ours->target())));
  report(state, c, field.all(), ours->bytes());
}

void run_float_peak(benchmark::State& state, int threads, bool quick) {
  constexpr std::int64_t operations = 100'000'000;  // short: less comes in between
  const auto target = measuring::fastest_target();
  auto limit = target ? measuring::float_peak(*target, operations, threads) : std::nullopt;
  if (!limit) return state.SkipWithError("the CPU has no such instructions");
  std::vector<Competitor> field{*std::move(limit)};
  race(field, 0.6, quick, threads > 1);
  state.SetLabel(std::string(name(*target)));
  state.counters["TOPS"] = 1e-12 * static_cast<double>(operations) / field[0].seconds;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(field[0].seconds);
}

// Weights of four bits in all groups; those of eight, which need them less, in one size of group,
// and of 16-bit activations with a scale for each channel too.
std::vector<std::pair<LinearScheme, std::int64_t>> schemes(bool quick) {
  std::vector<std::pair<LinearScheme, std::int64_t>> all;
  for (const auto& scheme : {w4a8, w4a16})
    for (const std::int64_t group : {32, 64, 128})
      if (!quick || group != 64) all.emplace_back(scheme, group);
  all.emplace_back(w8a8, 128);
  all.emplace_back(w8a16, 128);
  all.emplace_back(w8a16, 0);
  all.emplace_back(f32_weights, 0);
  all.emplace_back(bf16_weights, 0);
  if (!quick) all.emplace_back(f16_weights, 0);
  return all;
}

void add_shape(const Options& options, const LinearShape& shape, int threads) {
  const bool small = shape.n * shape.k <= small_weights;
  for (const auto& [scheme, group] : schemes(options.quick)) {
    if (group != 0 && shape.k % group != 0) continue;
    for (const bool cold : {false, true}) {
      // (Hundreds of small copies would be as many pools of threads of a peer's.)
      if (cold && (shape.m > few_rows || (small && threads > 1))) continue;
      const GroupCase c{scheme, group, shape, cold, threads};
      add_case(options, c.name(),
               [c, quick = options.quick](benchmark::State& s) { run_case(s, c, quick); });
    }
  }
}

}  // namespace

void add_linear_group(const Options& options) {
  const int all = Stream::cpu().threads();
  for (int threads = 1; threads <= all; threads += std::max(1, all - 1)) {
    add_case(options, "linear/float_peak/" + std::to_string(threads) + 't',
             [threads, quick = options.quick](benchmark::State& s) {
               run_float_peak(s, threads, quick);
             });
    for (const auto& shape : shapes) {
      const bool seldom = shape.m == 4 || shape.m == 126;  // beside others that are near
      if (!options.quick || !seldom) add_shape(options, shape, threads);
    }
  }
}

}  // namespace octavo::bench
