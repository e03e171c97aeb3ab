// How far a quantized checkpoint is from the float one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "core/fp_environment.hpp"
#include "octavo/dequantize.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/convert.hpp"
#include "offline/files.hpp"
#include "offline/safetensors_header.hpp"
#include "offline/slab.hpp"
#include "offline/smooth_parts.hpp"
#include "offline/stored_layer.hpp"

namespace octavo {

using namespace offline;

namespace {

struct Job {
  LinearLayer layer;
  TensorRef original;  // [n, k], float
  StoredLayer stored;
  std::vector<float> smoothing;  // empty: none
  Activations plain, smoothed;   // sampled rows, if any
};

struct Sums {
  double signal = 0, noise = 0, product = 0, energy = 0, max_abs = 0;
  double clipped = 0;
  std::int64_t non_finite = 0;
  double output_signal = 0, output_noise = 0;
};

// w and w_q of a slab, element by element.
template <class T, class D>
void compare(const T* w, const D* q, const std::vector<std::byte>& scales,
             const QuantizedSlab& slab, Sums& sums) {
  const std::int64_t group = slab.group_size > 0 ? slab.group_size : slab.channels;
  const double low = slab.group_size > 0 ? -8 : -128, high = slab.group_size > 0 ? 7 : 127;
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
    D scale{};
    std::memcpy(&scale, &scales[static_cast<std::size_t>(i / group) * sizeof(D)], sizeof(D));
    const double v = std::rint(x / static_cast<double>(scale));
    if (v < low || v > high) sums.clipped += 1;
  }
}

template <class D>
Status dequantize(const Stream& stream, const QuantizedSlab& slab, std::vector<D>& out) {
  out.resize(static_cast<std::size_t>(slab.rows * slab.channels));
  const bool grouped = slab.group_size > 0;
  const auto plan = DequantizePerGroupPlan::select(
      stream, {.rows = slab.rows,
               .cols = slab.channels,
               .group_size = grouped ? slab.group_size : slab.channels,
               .input = grouped ? DType::s4 : DType::s8,
               .output = dtype_of<D>});
  if (!plan) return plan.error();
  const std::int64_t scales = slab.rows * (grouped ? slab.channels / slab.group_size : 1);
  return plan->run(stream, {},
                   {.input = TensorRef(slab.q.data(), grouped ? DType::s4 : DType::s8,
                                       {slab.rows, slab.channels}),
                    .scales = TensorRef(slab.scales.data(), slab.compute, {scales}),
                    .output = TensorMut(out, {slab.rows, slab.channels})});
}

Status measure(const Stream& stream, const Job& job, std::int64_t first, std::int64_t count,
               Sums& sums) {
  std::vector<std::byte> rows;
  gather_rows(job.original, first, count, rows);
  const DType type = job.original.dtype;
  if (job.plain.rows > 0) {
    std::vector<double> y;
    std::vector<float> y_q;
    QuantizedSlab slab;
    job.stored.read(first, count, slab);
    multiply(job.plain, rows.data(), type, count, y);
    if (Status s = multiply(stream, job.smoothed, slab, y_q); !s) return s;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sums.output_signal += y[i] * y[i];
      sums.output_noise += (y[i] - double{y_q[i]}) * (y[i] - double{y_q[i]});
    }
  }
  if (!job.smoothing.empty())
    scale_columns(stream, type, rows.data(), count, job.smoothing, rows.data());
  QuantizedSlab slab;
  job.stored.read(first, count, slab);
  const detail::FpEnvironment environment;
  const auto run = [&]<class D>(D) -> Status {
    std::vector<D> restored;
    if (Status s = dequantize(stream, slab, restored); !s) return s;
    with_float_type(type, [&]<class T>() {
      compare(reinterpret_cast<const T*>(rows.data()), restored.data(), slab.scales, slab, sums);
    });
    return {};
  };
  return slab.compute == DType::f64 ? run(double{}) : run(float{});
}

LayerError error_of(const Job& job, Scheme scheme, const std::vector<Sums>& slabs) {
  Sums all;
  for (const Sums& s : slabs) {
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
  LayerError e;
  e.name = job.layer.name;
  e.n = job.layer.n;
  e.k = job.layer.k;
  e.scheme = scheme;
  e.smoothed = !job.smoothing.empty();
  e.weight_error = relative(all.noise, all.signal);
  e.sqnr_db = all.noise > 0 ? 10 * std::log10(all.signal / all.noise)
                            : std::numeric_limits<double>::infinity();
  e.cosine = all.signal > 0 && all.energy > 0 ? all.product / std::sqrt(all.signal * all.energy)
                                              : (all.noise == 0 ? 1.0 : 0.0);
  e.max_abs = all.max_abs;
  e.clip_rate = all.clipped / static_cast<double>(e.n * e.k);
  e.non_finite = all.non_finite;
  e.rows = job.plain.rows;
  if (e.rows > 0) e.output_error = relative(all.output_noise, all.output_signal);
  return e;
}

// The rows that a layer is fed with, and the same as its smoothed self meets them.
void sample_rows(const LayerStatistics* s, Scheme scheme, Job& job) {
  if (s == nullptr || s->sample_count() == 0 || s->channels() != job.layer.k) return;
  const detail::FpEnvironment environment;
  job.plain.rows = s->sample_count();
  job.plain.channels = job.layer.k;
  job.plain.values = s->sample();
  job.plain.scheme = scheme;
  job.smoothed = job.plain;
  job.smoothed.scale = job.stored.input_scale;
  for (std::size_t i = 0; i < job.smoothed.values.size() && !job.smoothing.empty(); ++i)
    job.smoothed.values[i] /= job.smoothing[i % job.smoothing.size()];
}

// The scales of norms and of the layers after them, by module.
struct Smoothing {
  using Scales = std::map<std::string, std::vector<float>>;
  Smoothing(const Checkpoint& original, Scales scales) : norms(std::move(scales)) {
    for (const SmoothingPair& pair : original.pairs().pairs)
      if (const auto found = norms.find(pair.norm); found != norms.end())
        for (const std::string& linear : pair.linears) layers.emplace(linear, &found->second);
  }
  // Of the norm before a layer; empty if there are none.
  [[nodiscard]] std::vector<float> of_layer(const std::string& layer) const {
    const auto found = layers.find(layer);
    return found == layers.end() ? std::vector<float>() : *found->second;
  }
  Scales norms;
  std::unordered_map<std::string, const std::vector<float>*> layers;
};

// What smoothing makes of a tensor that is not quantized; empty if nothing.
Result<std::vector<std::byte>> smoothed_bytes(const Stream& stream, const Smoothing& smoothing,
                                              const SafetensorsSet::Entry& entry) {
  const std::string module(parent(entry.tensor->name));
  const std::vector<std::uint64_t>& shape = entry.tensor->shape;
  const auto type = dtype_of_stored(entry.tensor->type);
  std::vector<std::byte> out;
  if (!type || !is_float(*type)) return out;
  const auto bytes = entry.file->bytes(*entry.tensor);
  if (const auto norm = smoothing.norms.find(module); norm != smoothing.norms.end()) {
    if (shape != std::vector<std::uint64_t>{norm->second.size()}) return out;
    out.assign(bytes.begin(), bytes.end());
    const TensorMut values(out.data(), *type, {static_cast<std::int64_t>(shape[0])});
    if (Status s = divide_vector(entry.file->path(), entry.tensor->name, values, norm->second); !s)
      return s.error();
    return out;
  }
  const std::vector<float> scales = smoothing.of_layer(module);
  if (scales.empty() || !entry.tensor->name.ends_with(".weight") || shape.size() != 2) return out;
  if (shape[1] != scales.size()) return out;
  out.resize(bytes.size());
  scale_columns(stream, *type, bytes.data(), static_cast<std::int64_t>(shape[0]), scales,
                out.data());
  return out;
}

}  // namespace

Result<VerifyReport> verify(const Stream& stream, const Checkpoint& original,
                            const Checkpoint& quantized, const Statistics* statistics,
                            const ProgressCallback& progress) {
  return guarded(quantized.path().string(), [&]() -> Result<VerifyReport> {
    const std::string config_path = (quantized.tensors().directory() / "config.json").string();
    const auto config = read_config_scheme(config_path, quantized.config());
    if (!config) return config.error();
    auto scales = read_smoothing(quantized.tensors().directory());
    if (!scales) return scales.error();
    const Smoothing smoothing(original, *std::move(scales));
    const std::uint64_t total = original.bytes();
    VerifyReport report;
    std::uint64_t done = 0;
    for (const SafetensorsFile& file : original.tensors().files())
      for (const StoredTensor& t : file.tensors()) {
        const auto source = original.tensors().find(t.name);
        const std::string module(parent(t.name));
        const LinearLayer* layer = t.name.ends_with(".weight") ? original.layer(module) : nullptr;
        if (progress) progress({done += t.size(), total, t.name});
        if (layer != nullptr && StoredLayer::exists(quantized.tensors(), module)) {
          auto stored = StoredLayer::open(quantized.tensors(), *layer, *config);
          if (!stored) return stored.error();
          Job job{*layer,
                  weight_view(original.tensors(), *layer),
                  *std::move(stored),
                  smoothing.of_layer(module),
                  {},
                  {}};
          if (!job.smoothing.empty() && job.smoothing.size() != static_cast<std::size_t>(layer->k))
            return bad_file(quantized.path().string(),
                            fmt::format("{}: expected {} smoothing scales, got {}", module,
                                        layer->k, job.smoothing.size()));
          sample_rows(statistics == nullptr ? nullptr : statistics->find(module), config->scheme,
                      job);
          const std::int64_t step = rows_per_slab(layer->k);
          std::vector<Sums> sums(static_cast<std::size_t>((layer->n + step - 1) / step));
          if (Status s = for_each_slab(stream, sums.size(),
                                       [&](const Stream& one, std::size_t i) {
                                         const auto at = static_cast<std::int64_t>(i) * step;
                                         return measure(one, job, at, std::min(step, layer->n - at),
                                                        sums[i]);
                                       });
              !s)
            return s.error();
          const detail::FpEnvironment environment;
          report.layers.push_back(error_of(job, config->scheme, sums));
          continue;
        }
        const auto other = quantized.tensors().find(t.name);
        if (!other)
          return bad_tensor(quantized.path().string(), t.name,
                            fmt::format("expected this tensor of {}, got none", file.path()));
        const auto smoothed = smoothed_bytes(stream, smoothing, source);
        if (!smoothed) return smoothed.error();
        const std::span<const std::byte> expected =
            smoothed->empty() ? file.bytes(t) : std::span<const std::byte>(*smoothed);
        const auto got = other.file->bytes(*other.tensor);
        if (other.tensor->type != t.type || other.tensor->shape != t.shape ||
            !std::equal(got.begin(), got.end(), expected.begin(), expected.end()))
          report.unexpected.push_back(t.name);
      }
    if (report.layers.empty())
      return bad_file(quantized.path().string(), "expected quantized layers, got none");
    const auto by_name = [](const LayerError& a, const LayerError& b) { return a.name < b.name; };
    std::sort(report.layers.begin(), report.layers.end(), by_name);
    std::sort(report.unexpected.begin(), report.unexpected.end());
    return report;
  });
}

}  // namespace octavo
