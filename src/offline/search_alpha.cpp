// The alpha with which a group of layers loses least.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "numerics/smooth.hpp"
#include "octavo/smooth.hpp"
#include "offline/files.hpp"
#include "offline/slab.hpp"
#include "offline/smooth_parts.hpp"

namespace octavo {

using detail::invalid;
using namespace offline;

namespace {

struct Item {
  const SearchedWeight* layer = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Slabs of all weights. They depend on shapes only, so sums over them do not depend on threads.
std::vector<Item> items_of(std::span<const SearchedWeight> weights, std::int64_t channels) {
  const std::int64_t step = rows_per_slab(channels);
  std::vector<Item> items;
  for (const SearchedWeight& w : weights)
    for (std::int64_t at = 0; at < w.weight.shape[0]; at += step)
      items.push_back({&w, at, std::min(step, w.weight.shape[0] - at)});
  return items;
}

struct Problem {
  std::vector<double> candidates;
  std::vector<std::vector<float>> scales;  // of each candidate
  std::vector<Activations> inputs;         // the rows divided by them
  Activations plain;
};

struct Errors {
  std::vector<double> squares;  // of each candidate
  double energy = 0;
};

double squared_distance(const std::vector<double>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = a[i] - double{b[i]};
    sum += d * d;
  }
  return sum;
}

Status measure(const Stream& stream, const Problem& problem, const Item& item, Errors& out) {
  const DType type = item.layer->weight.dtype;
  std::vector<std::byte> rows;
  std::vector<std::byte> smoothed;
  std::vector<double> y;
  std::vector<float> approximate;
  QuantizedSlab quantized;
  gather_rows(item.layer->weight, item.first, item.count, rows);
  multiply(problem.plain, rows.data(), type, item.count, y);
  for (const double v : y) out.energy += v * v;
  out.squares.assign(problem.candidates.size(), 0.0);
  smoothed.resize(rows.size());
  for (std::size_t c = 0; c < problem.candidates.size(); ++c) {
    scale_columns(stream, type, rows.data(), item.count, problem.scales[c], smoothed.data());
    if (Status s = quantize_slab(stream, smoothed.data(), type, item.count, problem.plain.channels,
                                 item.layer->form, quantized);
        !s)
      return s;
    if (Status s = multiply(stream, problem.inputs[c], quantized, approximate); !s) return s;
    out.squares[c] = squared_distance(y, approximate);
  }
  return {};
}

Status check(const AlphaSearchArgs& args) {
  const auto channels = static_cast<std::int64_t>(args.absmax.size());
  if (args.rows.shape.rank() != 2 || args.rows.shape[1] != channels || args.rows.shape[0] < 1)
    return invalid("rows", fmt::format("expected at least one row of {} channels, got {}", channels,
                                       detail::to_string(args.rows.shape)));
  if (const auto checked = detail::check_input("rows", args.rows, DType::f32); !checked)
    return checked.error();
  const std::int64_t group = args.group_size;
  if (weight_bits(args.scheme) == 4 &&
      (group < 0 || group % 4 != 0 || (group > 0 && channels % group != 0)))
    return invalid("group_size",
                   fmt::format("expected a divisor of {} that is a multiple of 4, or 0 for a scale "
                               "per channel, got {}",
                               channels, group));
  return {};
}

Problem prepare(const AlphaSearchArgs& args, std::vector<double> candidates,
                std::span<const double> weight_absmax) {
  const detail::FpEnvironment environment;
  Problem p;
  p.candidates = std::move(candidates);
  p.plain.rows = args.rows.shape[0];
  p.plain.channels = args.rows.shape[1];
  const auto* from = static_cast<const float*>(args.rows.data);
  p.plain.values.reserve(static_cast<std::size_t>(p.plain.rows * p.plain.channels));
  for (std::int64_t r = 0; r < p.plain.rows; ++r)
    for (std::int64_t k = 0; k < p.plain.channels; ++k)
      p.plain.values.push_back(from[r * args.rows.strides[0] + k * args.rows.strides[1]]);
  for (const double alpha : p.candidates) {
    const std::vector<float>& s =
        p.scales.emplace_back(scales_from(weight_absmax, args.absmax, alpha));
    Activations& x = p.inputs.emplace_back(p.plain);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] /= s[i % s.size()];
    x.scale = double{numerics::static_scale(args.absmax, s)};
  }
  return p;
}

}  // namespace

Result<AlphaSearch> search_alpha(const Stream& stream, const AlphaSearchArgs& args) {
  for (const double alpha : args.candidates)
    if (Status s = check_smoothing(args.weights, args.absmax, alpha); !s) return s.error();
  if (Status s = check_smoothing(args.weights, args.absmax, 0.5); !s) return s.error();
  if (Status s = check(args); !s) return s.error();
  return guarded("weights", [&]() -> Result<AlphaSearch> {
    const auto most =
        column_absmax(stream, args.weights, static_cast<std::int64_t>(args.absmax.size()));
    if (!most) return most.error();
    const LayerForm form = weight_bits(args.scheme) == 4
                               ? LayerForm{args.scheme, args.group_size, args.asymmetric}
                               : LayerForm{args.scheme};
    std::vector<SearchedWeight> weights;
    for (const TensorRef& w : args.weights) weights.push_back({w, form});
    return search_alpha_of(stream, weights, args, *most);
  });
}

Result<AlphaSearch> offline::search_alpha_of(const Stream& stream,
                                             std::span<const SearchedWeight> weights,
                                             const AlphaSearchArgs& args,
                                             std::span<const double> weight_absmax) {
  return guarded("weights", [&]() -> Result<AlphaSearch> {
    std::vector<double> candidates(args.candidates.begin(), args.candidates.end());
    if (candidates.empty()) {
      candidates.resize(21);
      for (std::size_t i = 0; i < candidates.size(); ++i)
        candidates[i] = static_cast<double>(i) / 20.0;
    }
    const auto channels = static_cast<std::int64_t>(args.absmax.size());
    const Problem problem = prepare(args, std::move(candidates), weight_absmax);
    const std::vector<Item> items = items_of(weights, channels);
    std::vector<Errors> errors(items.size());
    if (Status s = for_each_slab(stream, items.size(),
                                 [&](const Stream& one, std::size_t i) {
                                   return measure(one, problem, items[i], errors[i]);
                                 });
        !s)
      return s.error();

    const detail::FpEnvironment environment;
    AlphaSearch found;
    found.errors.assign(problem.candidates.size(), 0.0);
    double energy = 0;
    for (const Errors& e : errors) {
      energy += e.energy;
      for (std::size_t c = 0; c < found.errors.size(); ++c) found.errors[c] += e.squares[c];
    }
    for (double& e : found.errors) {
      e = energy > 0 ? e / energy : e;
      if (std::isnan(e)) e = std::numeric_limits<double>::infinity();
    }
    const auto best = std::min_element(found.errors.begin(), found.errors.end());
    found.error = *best;
    found.alpha = problem.candidates[static_cast<std::size_t>(best - found.errors.begin())];
    return found;
  });
}

}  // namespace octavo
