#include "offline/measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "core/fp_environment.hpp"
#include "octavo/dequantize.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/convert.hpp"

namespace octavo::offline {
namespace {

// w and w_q of a slab, element by element.
template <class T, class D>
void compare(const T* w, const D* q, const QuantizedSlab& slab, ErrorSums& sums) {
  const std::int64_t group = slab.group();
  const bool int4 = slab.code() == DType::s4;
  const double low = int4 ? -8 : -128, high = int4 ? 7 : 127;
  for (std::int64_t i = 0; i < slab.rows * slab.channels; ++i) {
    const double x = static_cast<double>(widen(w[i]));
    const double y = static_cast<double>(q[i]);
    const double d = x - y;
    if (!std::isfinite(x)) {
      ++sums.non_finite;
      continue;
    }
    sums.signal += x * x;
    sums.energy += y * y;
    sums.product += x * y;
    sums.noise += d * d;
    sums.max_abs = std::max(sums.max_abs, std::fabs(d));
    const auto slice = static_cast<std::size_t>(i / group);
    D scale{};
    std::memcpy(&scale, &slab.scales[slice * sizeof(D)], sizeof(D));
    const double zero_point = slab.zero_points.empty() ? 0 : slab.zero_points[slice];
    const double v = std::rint(x / static_cast<double>(scale)) + zero_point;
    if (v < low || v > high) sums.clipped += 1;
  }
}

template <class D>
Status dequantize(const Stream& stream, const QuantizedSlab& slab, std::vector<D>& out) {
  out.resize(static_cast<std::size_t>(slab.rows * slab.channels));
  const auto plan = DequantizePerGroupPlan::select(stream, {.rows = slab.rows,
                                                            .cols = slab.channels,
                                                            .group_size = slab.group(),
                                                            .input = slab.code(),
                                                            .output = dtype_of<D>});
  if (!plan) return plan.error();
  const Shape slices{slab.rows * (slab.channels / slab.group())};
  return plan->run(
      stream, {},
      {.input = TensorRef(slab.q.data(), slab.code(), {slab.rows, slab.channels}),
       .scales = TensorRef(slab.scales.data(), slab.compute, slices),
       .zero_points = slab.zero_points.empty() ? TensorRef() : TensorRef(slab.zero_points, slices),
       .output = TensorMut(out, {slab.rows, slab.channels})});
}

}  // namespace

double stored_bits(const LinearLayer& layer, std::uint64_t bytes) {
  return 8.0 * static_cast<double>(bytes) /
         (static_cast<double>(layer.n) * static_cast<double>(layer.k));
}

Probe make_probe(ProbeArgs args) {
  const LinearLayer& layer = args.layer;
  const LayerStatistics* const statistics = args.statistics;
  Probe probe;
  probe.layer.name = layer.name;
  probe.layer.n = layer.n;
  probe.layer.k = layer.k;
  probe.layer.kind = layer.kind;
  probe.layer.scheme = args.form.scheme;
  probe.layer.group_size = args.form.group_size;
  probe.layer.asymmetric = args.form.asymmetric;
  probe.layer.bits = stored_bits(layer, args.bytes);
  probe.layer.smoothed = !args.smoothing.empty();
  probe.smoothing = std::move(args.smoothing);
  if (statistics == nullptr || statistics->sample_count() == 0 || statistics->channels() != layer.k)
    return probe;
  const detail::FpEnvironment environment;
  probe.layer.rows = statistics->sample_count();
  probe.plain = {statistics->sample_count(), layer.k, statistics->sample(), 1.0};
  probe.quantized = probe.plain;
  probe.quantized.scale = args.input_scale;
  for (std::size_t i = 0; i < probe.quantized.values.size() && probe.layer.smoothed; ++i)
    probe.quantized.values[i] /= probe.smoothing[i % probe.smoothing.size()];
  return probe;
}

Status measure_slab(const Stream& one, const Probe& probe, DType type, std::vector<std::byte>& rows,
                    const QuantizedSlab& slab, ErrorSums& sums) {
  if (probe.plain.rows > 0) {
    std::vector<double> y;
    std::vector<float> y_q;
    multiply(probe.plain, rows.data(), type, slab.rows, y);
    if (Status s = multiply(one, probe.quantized, slab, y_q); !s) return s;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sums.output_signal += y[i] * y[i];
      sums.output_noise += (y[i] - double{y_q[i]}) * (y[i] - double{y_q[i]});
    }
  }
  if (!probe.smoothing.empty())
    scale_columns(one, type, rows.data(), slab.rows, probe.smoothing, rows.data());
  const detail::FpEnvironment environment;
  const auto run = [&]<class D>(D) -> Status {
    std::vector<D> restored;
    if (Status s = dequantize(one, slab, restored); !s) return s;
    with_float_type(type, [&]<class T>() {
      compare(reinterpret_cast<const T*>(rows.data()), restored.data(), slab, sums);
    });
    return {};
  };
  return slab.compute == DType::f64 ? run(double{}) : run(float{});
}

LayerError error_of(const Probe& probe, std::span<const ErrorSums> slabs) {
  const detail::FpEnvironment environment;
  ErrorSums all;
  for (const ErrorSums& s : slabs) {
    all.signal += s.signal;
    all.noise += s.noise;
    all.product += s.product;
    all.energy += s.energy;
    all.clipped += s.clipped;
    all.non_finite += s.non_finite;
    all.max_abs = std::max(all.max_abs, s.max_abs);
    all.output_signal += s.output_signal;
    all.output_noise += s.output_noise;
  }
  const auto relative = [](double noise, double signal) {
    if (noise == 0) return 0.0;
    return signal > 0 ? std::sqrt(noise / signal) : std::numeric_limits<double>::infinity();
  };
  LayerError e = probe.layer;
  e.weight_error = relative(all.noise, all.signal);
  e.sqnr_db = all.noise > 0 ? 10 * std::log10(all.signal / all.noise)
                            : std::numeric_limits<double>::infinity();
  e.cosine = all.signal > 0 && all.energy > 0 ? all.product / std::sqrt(all.signal * all.energy)
                                              : (all.noise == 0 ? 1.0 : 0.0);
  e.max_abs = all.max_abs;
  e.clip_rate = all.clipped / static_cast<double>(e.n * e.k);
  e.non_finite = all.non_finite;
  if (e.rows > 0) e.output_error = relative(all.output_noise, all.output_signal);
  return e;
}

Result<LayerError> measure_stored(const Stream& stream, const Probe& probe, const TensorRef& weight,
                                  const StoredLayer& stored) {
  const std::int64_t n = weight.shape[0], step = rows_per_slab(weight, probe.layer.form());
  std::vector<ErrorSums> sums(static_cast<std::size_t>((n + step - 1) / step));
  Status status = for_each_slab(stream, sums.size(), [&](const Stream& one, std::size_t i) {
    const auto first = static_cast<std::int64_t>(i) * step;
    const std::int64_t count = std::min(step, n - first);
    std::vector<std::byte> rows;
    gather_rows(weight, first, count, rows);
    QuantizedSlab slab;
    stored.read(first, count, slab);
    return measure_slab(one, probe, weight.dtype, rows, slab, sums[i]);
  });
  if (!status) return status.error();
  return error_of(probe, sums);
}

void complete(const Checkpoint& original, VerifyReport& report) {
  std::sort(report.layers.begin(), report.layers.end(),
            [](const LayerError& a, const LayerError& b) { return a.name < b.name; });
  std::set<std::string_view> smoothable;
  for (const SmoothingPair& pair : original.pairs().pairs)
    smoothable.insert(pair.linears.begin(), pair.linears.end());
  for (LayerError& e : report.layers) e.smoothable = smoothable.contains(e.name);
}

}  // namespace octavo::offline
