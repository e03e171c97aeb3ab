#include "cli/bench_measure.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "cli/bench_schemes.hpp"
#include "core/check.hpp"
#include "measuring/limit.hpp"
#include "measuring/memory.hpp"
#include "measuring/peak.hpp"
#include "octavo/quantized_linear.hpp"

namespace octavo::cli {
namespace {

using Clock = std::chrono::steady_clock;
using measuring::LargePages;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes that no cache holds.
std::int64_t beyond_caches() {
  const std::int64_t cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp<std::int64_t>(2 * cache, std::int64_t{128} << 20, std::int64_t{1} << 30);
}

// The fastest call of one turn.
double turn(const std::function<void()>& call, double seconds) {
  call();
  double best = 1e300;
  const auto start = Clock::now();
  do {
    const auto one = Clock::now();
    call();
    best = std::min(best, seconds_since(one));
  } while (seconds_since(start) < seconds);
  return best;
}

constexpr int turns = 5;

// Threads of the other one that still spin would take part of the machine.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// A layer's operands. One copy of the weights, or as many as exceed the caches.
struct Operands {
  std::vector<PackedWeight> packed;
  std::vector<LargePages<float>> weights;
  std::vector<float> scales;
  std::vector<SchemeLayer> schemes;
};

std::int64_t copies(std::int64_t bytes, bool warm) {
  constexpr std::int64_t most = 256;
  return warm ? 1 : std::clamp<std::int64_t>(beyond_caches() / bytes + 1, 1, most);
}

Status check_memory(LayerShape shape, const MeasureOptions& o) {
  const auto n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  const auto m = static_cast<double>(*std::max_element(o.rows.begin(), o.rows.end()));
  const auto others = static_cast<double>(o.schemes.size());
  double each = 6 + (o.schemes.empty() ? 0 : 4);  // (with rows that are packed)
  for (const std::string& scheme : o.schemes) each += scheme_bytes(scheme);
  const double extra = o.warm ? 0 : (2 + others) * static_cast<double>(beyond_caches());
  const double needed = each * n * k + 12 * m * (n + k) + extra;
  const double have =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed <= 0.8 * have) return {};
  return detail::invalid(
      "shape",
      fmt::format("expected layers that fit into memory, got {}x{} with {} rows, "
                  "which takes {:.3g} GB of {:.3g}",
                  shape.n, shape.k, static_cast<std::int64_t>(m), needed / 1e9, have / 1e9));
}

Result<Operands> make_operands(const Stream& stream, const FloatGemm& gemm, LayerShape shape,
                               const MeasureOptions& o) {
  const bool warm = o.warm;
  const std::int64_t size = shape.n * shape.k;
  std::minstd_rand rng(1);
  std::vector<std::int8_t> q(static_cast<std::size_t>(size));
  for (auto& v : q) v = static_cast<std::int8_t>(static_cast<int>(rng() >> 8U & 0xFFU) - 128);
  Operands out;
  out.scales.assign(static_cast<std::size_t>(shape.n), 0.01F);
  for (std::int64_t i = 0; i < copies(size, warm); ++i) {
    auto packed = pack(stream, TensorRef(q, {shape.n, shape.k}));
    if (!packed) return packed.error();
    out.packed.push_back(*std::move(packed));
  }
  const std::int64_t float_copies = gemm.name().empty() ? 0 : copies(4 * size, warm);
  for (std::int64_t i = 0; i < float_copies; ++i)
    std::copy(q.begin(), q.end(), out.weights.emplace_back(q.size()).begin());
  for (const std::string& scheme : o.schemes) {
    auto layer = SchemeLayer::make(stream, scheme, o.group, shape, warm ? 0 : beyond_caches());
    if (!layer) return layer.error();
    out.schemes.push_back(*std::move(layer));
  }
  return out;
}

Result<LayerTimes> measure_rows(const Stream& stream, const FloatGemm& gemm, LayerShape shape,
                                const Operands& operands, std::int64_t m, double seconds) {
  const std::int64_t n = shape.n, k = shape.k;
  std::vector<float> x(static_cast<std::size_t>(m * k));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 101) - 50;
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const auto plan =
      QuantizedLinearPlan::select(stream, {.m = m, .n = n, .k = k, .packed_weight = true});
  if (!plan) return plan.error();
  const WorkspaceBuffer workspace(plan->workspace_size());
  Status status;
  std::size_t next = 0;
  const auto run_int8 = [&] {
    Status s = plan->run(stream, workspace,
                         {.input = TensorRef(x, {m, k}),
                          .weight = operands.packed[next++ % operands.packed.size()],
                          .weight_scales = operands.scales,
                          .output = TensorMut(y, {m, n})});
    if (!s) status = std::move(s);
  };
  const auto run_float = [&] {
    gemm.run(m, n, k, x.data(), operands.weights[next++ % operands.weights.size()].begin(),
             y.data());
  };
  LayerTimes times;
  times.m = m;
  // Each with where its time goes.
  std::vector<std::pair<std::function<void()>, double*>> calls{{run_int8, &times.int8_seconds}};
  if (!operands.weights.empty()) calls.emplace_back(run_float, &times.float_seconds);
  times.schemes.resize(operands.schemes.size());
  for (std::size_t i = 0; i < operands.schemes.size(); ++i) {
    const SchemeLayer& layer = operands.schemes[i];
    auto call = layer.call(stream, TensorRef(x, {m, k}), TensorMut(y, {m, n}), status);
    if (!call) return call.error();
    times.schemes[i].scheme = layer.scheme();
    times.schemes[i].title = layer.title();
    times.schemes[i].group = layer.group();
    times.schemes[i].is_float = layer.is_float();
    calls.emplace_back(*std::move(call), &times.schemes[i].seconds);
  }
  for (const auto& [call, best] : calls) *best = 1e300;
  for (int i = 0; i < turns; ++i)
    for (const auto& [call, best] : calls) {
      *best = std::min(*best, turn(call, seconds / turns));
      if (!status) return status.error();
      settle();
    }
  return times;
}

// The least that they could be.
void add_limits(const MachineLimits& limits, LayerShape shape, const Operands& operands,
                LayerTimes& times) {
  const auto size = static_cast<double>(shape.n * shape.k);
  const double activations = 4.0 * static_cast<double>(times.m * (shape.n + shape.k));
  const double operations = 2.0 * static_cast<double>(times.m) * size;
  times.memory_seconds = (size + activations) / limits.bytes_per_second;
  if (limits.operations_per_second > 0)
    times.peak_seconds = operations / limits.operations_per_second;
  for (std::size_t i = 0; i < times.schemes.size(); ++i) {
    const SchemeLayer& layer = operands.schemes[i];
    SchemeTimes& t = times.schemes[i];
    t.memory_seconds = (static_cast<double>(layer.bytes()) + activations) / limits.bytes_per_second;
    const double rate =
        layer.is_float() ? limits.float_operations_per_second : limits.operations_per_second;
    if (rate > 0) t.peak_seconds = layer.cost() * operations / rate;
  }
}

}  // namespace

void measure_limits(int threads, double seconds, MachineLimits& limits) {
  const LargePages<std::byte> buffer(static_cast<std::size_t>(beyond_caches()));
  std::fill(buffer.begin(), buffer.end(), std::byte{1});
  std::vector<measuring::Competitor> reads;
  measuring::add_reads(reads, {buffer.begin()}, static_cast<std::int64_t>(buffer.size()), threads);
  constexpr std::int64_t operations = std::int64_t{1} << 28;
  const auto target = measuring::fastest_target();
  const auto peak = target ? measuring::peak(*target, operations, threads) : std::nullopt;
  const auto float_peak =
      target ? measuring::float_peak(*target, operations, threads) : std::nullopt;
  if (target) limits.target = name(*target);
  for (int i = 0; i < turns; ++i) {
    for (const measuring::Competitor& c : reads)
      limits.bytes_per_second =
          std::max(limits.bytes_per_second,
                   static_cast<double>(buffer.size()) / turn(c.run, seconds / turns));
    const auto raise = [&](const std::optional<measuring::Competitor>& c, double& rate) {
      if (c) rate = std::max(rate, static_cast<double>(operations) / turn(c->run, seconds / turns));
    };
    raise(peak, limits.operations_per_second);
    raise(float_peak, limits.float_operations_per_second);
  }
}

Result<std::vector<LayerTimes>> measure_layer(const Stream& stream, const FloatGemm& gemm,
                                              const MachineLimits& limits, LayerShape shape,
                                              const MeasureOptions& options) {
  if (Status s = check_memory(shape, options); !s) return s.error();
  const auto operands = make_operands(stream, gemm, shape, options);
  if (!operands) return operands.error();
  std::vector<LayerTimes> out;
  out.reserve(options.rows.size());
  for (const std::int64_t m : options.rows) {
    if (options.next) options.next(m);
    auto times = measure_rows(stream, gemm, shape, *operands, m, options.seconds);
    if (!times) return times.error();
    add_limits(limits, shape, *operands, *times);
    out.push_back(*std::move(times));
  }
  return out;
}

}  // namespace octavo::cli
