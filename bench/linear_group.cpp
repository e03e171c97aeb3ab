// Linear layers with weights in groups, of four bits and of floats. Beside them the layer of int8
// ("int8": its time over ours), the peak of the machine for as many operations, and a read of as
// many bytes as the packed weights have ("stream").
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "linear_case.hpp"
#include "measuring/limit.hpp"
#include "measuring/peak.hpp"
#include "octavo/octavo.hpp"

namespace octavo::bench {
namespace {

constexpr std::array<LinearShape, 9> shapes{{{1, 1536, 576, 0.4},
                                             {1, 4096, 4096, 0.6},
                                             {4, 4096, 4096, 0.6},
                                             {16, 4096, 4096, 0.6},
                                             {64, 4096, 4096, 0.8},
                                             {128, 4096, 4096, 1.0},
                                             {512, 4096, 4096, 1.5},
                                             {1, 11008, 4096, 0.6},
                                             {128, 11008, 4096, 1.0}}};
constexpr std::int64_t few_rows = 16;

// "w4a8", "w4a16", "w8a8", "w8a16"; or "f32", "bf16", "f16": weights of floats.
struct Scheme {
  const char* name;
  DType weight;
  DType quantized;
};
constexpr std::array<Scheme, 7> schemes{{{"w4a8", DType::s4, DType::s8},
                                         {"w4a16", DType::s4, DType::s16},
                                         {"w8a8", DType::s8, DType::s8},
                                         {"w8a16", DType::s8, DType::s16},
                                         {"f32", DType::f32, DType::f32},
                                         {"bf16", DType::bf16, DType::bf16},
                                         {"f16", DType::f16, DType::f16}}};

struct GroupCase {
  Scheme scheme{};
  std::int64_t group = 0;
  LinearShape shape{};
  bool cold = false;
  int threads = 1;

  [[nodiscard]] std::string name() const {
    return "linear_group/" + std::string(scheme.name) +
           (group == 0 ? "" : "-g" + std::to_string(group)) + (cold ? "/cold/" : "/warm/") +
           shape.name() + '/' + std::to_string(threads) + 't';
  }
};

// Packed weights: so many of them, used in turn, that cold ones have left every cache.
std::vector<PackedWeight> pack_all(const GroupCase& c) {
  const auto [m, n, k, seconds] = c.shape;
  const DType type = c.scheme.weight;
  static Buffer buffer;
  std::byte* rows = buffer.reserve(bytes_for(type, n * k));
  fill_random(rows, is_packed(type) ? DType::s8 : type, is_packed(type) ? n * k / 2 : n * k, 2);
  std::vector<f16> scales;
  if (c.group != 0) scales.assign(static_cast<std::size_t>(n * (k / c.group)), to_f16(0.01F));
  const Stream stream = Stream::cpu();
  std::vector<PackedWeight> packed;
  std::int64_t bytes = 0;
  constexpr std::int64_t beyond_caches = std::int64_t{256} << 20;
  do {
    auto made = c.group == 0
                    ? pack(stream, TensorRef(rows, type, {n, k}))
                    : pack(stream, TensorRef(rows, type, {n, k}),
                           {.size = c.group, .scales = TensorRef(scales.data(), {n, k / c.group})});
    if (!made) return {};
    bytes += static_cast<std::int64_t>(made->bytes());
    packed.push_back(*std::move(made));
  } while (c.cold && bytes < beyond_caches);
  return packed;
}

template <class Plan, class Args>
Result<std::function<void()>> bind(const Stream& stream,
                                   const typename Plan::Descriptor& descriptor,
                                   std::vector<Args> all) {
  const auto plan = Plan::select(stream, descriptor);
  if (!plan) return plan.error();
  for (const auto& args : all)
    if (auto status = plan->can_implement(args); !status) return status.error();
  const auto workspace = std::make_shared<WorkspaceBuffer>(plan->workspace_size());
  const auto next = std::make_shared<std::size_t>(0);
  return std::function<void()>([=, plan = *plan, all = std::move(all)] {
    (void)plan.run(stream, *workspace, all[(*next)++ % all.size()]);
  });
}

Result<std::function<void()>> make_run(const GroupCase& c, const std::vector<PackedWeight>& packed,
                                       const std::byte* input, std::byte* output) {
  const auto [m, n, k, seconds] = c.shape;
  const Stream stream = Stream::cpu({.threads = c.threads});
  const TensorRef x(input, DType::f32, {m, k});
  const TensorMut y(output, DType::f32, {m, n});
  if (is_float(c.scheme.weight)) {
    std::vector<FloatLinearArgs> all;
    for (const auto& weight : packed) all.push_back({.input = x, .weight = weight, .output = y});
    return bind<FloatLinearPlan>(
        stream, {.m = m, .n = n, .k = k, .weight = c.scheme.weight, .packed_weight = true},
        std::move(all));
  }
  static std::vector<float> channels;
  channels.assign(static_cast<std::size_t>(n), 0.01F);
  std::vector<LinearArgs> all;
  for (const auto& weight : packed)
    all.push_back({.input = x,
                   .weight = weight,
                   .weight_scales = c.group == 0 ? TensorRef(channels) : TensorRef(),
                   .output = y});
  return bind<QuantizedLinearPlan>(stream,
                                   {.m = m,
                                    .n = n,
                                    .k = k,
                                    .weight = c.scheme.weight,
                                    .quantized = c.scheme.quantized,
                                    .packed_weight = true,
                                    .group_size = c.group,
                                    .weight_scale = DType::f16},
                                   std::move(all));
}

void run_case(benchmark::State& state, const GroupCase& c, bool quick) {
  const auto [m, n, k, seconds] = c.shape;
  static Buffer inputs, outputs, reads;
  std::byte* input = inputs.reserve(m * k * 4);
  std::byte* output = outputs.reserve(m * n * 4);
  fill_random(input, DType::f32, m * k, 1);
  const bool floats = is_float(c.scheme.weight);

  std::vector<Competitor> field;
  std::size_t copies = 1;
  const auto enter = [&](const char* name, Kind kind, const GroupCase& what) {
    const auto packed = pack_all(what);
    auto run = packed.empty() ? Result<std::function<void()>>(
                                    Error(ErrorCode::backend, "weight", "weight: not packed"))
                              : make_run(what, packed, input, output);
    if (!run) {
      state.SkipWithError(run.error().message().c_str());
      return std::vector<PackedWeight>();
    }
    // A turn of cold ones is a round of all copies; those of another size are repeated as often.
    if (kind == Kind::ours) copies = packed.size();
    field.push_back({.name = name, .kind = kind, .run = [run = *run, copies] {
                       for (std::size_t i = 0; i < copies; ++i) run();
                     }});
    return packed;
  };
  const auto packed = enter("octavo", Kind::ours, c);
  if (packed.empty()) return;
  GroupCase int8 = c;
  int8.scheme = schemes[2];
  int8.group = 0;
  if (!floats && enter("int8", Kind::variant, int8).empty()) return;

  const auto bytes = static_cast<std::int64_t>(packed[0].bytes());
  const auto target = measuring::fastest_target();
  const std::int64_t halves = c.scheme.quantized == DType::s16 ? 2 : 1;
  if (target && !floats)
    if (auto limit = measuring::peak(*target, halves * c.shape.operations(), c.threads)) {
      limit->run = [run = std::move(limit->run), copies] {
        for (std::size_t i = 0; i < copies; ++i) run();
      };
      field.push_back(*std::move(limit));
    }
  if (m <= few_rows) {
    const std::byte* data = reads.reserve(bytes * static_cast<std::int64_t>(copies));
    std::vector<const std::byte*> places;
    for (std::size_t i = 0; i < copies; ++i)
      places.push_back(data + static_cast<std::int64_t>(i) * bytes);
    const std::size_t first = field.size();
    measuring::add_reads(field, places, bytes, c.threads);
    for (std::size_t i = first; i < field.size(); ++i)
      field[i].run = [run = std::move(field[i].run), copies] {
        for (std::size_t j = 0; j < copies; ++j) run();
      };
  }
  for (auto& competitor : field)
    if (!c.cold && m <= few_rows) competitor.warm_up = 4;
  race(field, seconds, quick, c.threads > 1);

  const double ours = field[0].seconds;
  double stream = std::numeric_limits<double>::infinity();
  for (const auto& other : field) {
    if (other.kind == Kind::variant || other.name == "peak")
      state.counters[other.name] = other.seconds / ours;
    else if (other.kind == Kind::limit)
      stream = std::min(stream, other.seconds);
  }
  if (std::isfinite(stream)) state.counters["stream"] = stream / ours;
  const double once = ours / static_cast<double>(copies);
  state.counters["TOPS"] = 1e-12 * static_cast<double>(halves * c.shape.operations()) / once;
  state.counters["GB/s"] = 1e-9 * static_cast<double>(bytes) / once;
  for ([[maybe_unused]] auto _ : state) state.SetIterationTime(once);
}

}  // namespace

void add_linear_group(const Options& options) {
  const int all = Stream::cpu().threads();
  for (int threads = 1; threads <= all; threads += std::max(1, all - 1))
    for (const auto& shape : shapes)
      for (const auto& scheme : schemes)
        for (const std::int64_t group : {0, 32, 64, 128}) {
          const bool four_bits = scheme.weight == DType::s4;
          const bool wanted = is_float(scheme.weight) ? group == 0
                              : four_bits             ? group != 0
                                          : group == (scheme.quantized == DType::s16 ? 0 : 128);
          if (!wanted || (group != 0 && shape.k % group != 0)) continue;
          if (options.quick && group == 64) continue;
          for (const bool cold : {false, true}) {
            if (cold && shape.m > few_rows) continue;
            const GroupCase c{scheme, group, shape, cold, threads};
            add_case(options, c.name(),
                     [c, quick = options.quick](benchmark::State& s) { run_case(s, c, quick); });
          }
        }
}

}  // namespace octavo::bench
