// From what an observer saw to scales and zero points. One thread, doubles, a fixed order of
// additions and logarithms of our own: the same bits everywhere.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.hpp"
#include "core/fp_environment.hpp"
#include "numerics/affine.hpp"
#include "numerics/dynamic_range.hpp"
#include "numerics/log2.hpp"
#include "numerics/types.hpp"
#include "ops/dynamic_range/implementation.hpp"
#include "ops/observer/access.hpp"
#include "ops/observer/implementation.hpp"

namespace octavo {
namespace {

using detail::invalid;
using detail::unsupported;
using Range = numerics::Range<double>;

struct Problem {
  CalibrationOptions options;
  IntRange range;
  bool wide = false;  // f64: the compute type
  [[nodiscard]] bool symmetric() const { return options.mode == RangeMode::symmetric; }
};

/// A bin that is not empty: least and most are its edges, cut to the extremes.
struct Bin {
  double least = 0;
  double most = 0;
  std::int64_t count = 0;
  [[nodiscard]] double middle() const { return least + (most - least) * 0.5; }
  [[nodiscard]] double magnitude() const { return std::max(-least, most); }
};

// In order of their values.
std::vector<Bin> bins_of(const std::int64_t* counts, int histogram_bits, const Range& seen) {
  const int shift = 23 - histogram_bits;
  const std::uint32_t half = std::uint32_t{1} << (8 + histogram_bits);
  const std::uint32_t finite = std::uint32_t{255} << histogram_bits;
  std::vector<Bin> bins;
  const auto edge = [&](std::uint32_t i) -> double {
    return i >= finite ? std::numeric_limits<float>::max()
                       : std::bit_cast<float>(i << static_cast<unsigned>(shift));
  };
  const auto add = [&](std::uint32_t i, bool negative) {
    const std::int64_t count = counts[negative ? half + i : i];
    if (count == 0) return;
    const double inner = edge(i);
    const double outer = edge(i + 1);
    // (f64 beyond f32 is counted in the last bin, which reaches as far as that.)
    const bool last = i + 1 == finite;
    if (negative) {
      bins.push_back({last ? seen.low : std::max(-outer, seen.low), -inner, count});
    } else {
      bins.push_back({inner, last ? seen.high : std::min(outer, seen.high), count});
    }
  };
  for (std::uint32_t i = finite; i-- > 0;) add(i, true);
  for (std::uint32_t i = 0; i < finite; ++i) add(i, false);
  return bins;
}

std::int64_t total(const std::vector<Bin>& bins) {
  std::int64_t n = 0;
  for (const Bin& bin : bins) n += bin.count;
  return n;
}

// How many of n make up a percentile.
std::int64_t rank_of(double percentile, std::int64_t n) {
  return std::min(
      n, static_cast<std::int64_t>(std::ceil(percentile / 100.0 * static_cast<double>(n))));
}

Range by_percentile(const Problem& p, std::vector<Bin> bins, const Range& seen) {
  const std::int64_t rank = rank_of(p.options.percentile, total(bins));
  // The outer edge of the bin in which so many have been passed.
  const auto reach = [&](auto outer) {
    std::int64_t passed = 0;
    for (const Bin& bin : bins) {
      passed += bin.count;
      if (passed >= rank) return outer(bin);
    }
    return 0.0;
  };
  if (p.symmetric()) {
    std::stable_sort(bins.begin(), bins.end(),
                     [](const Bin& a, const Bin& b) { return a.magnitude() < b.magnitude(); });
    return {0, reach([](const Bin& bin) { return bin.magnitude(); })};
  }
  const double high = reach([](const Bin& bin) { return bin.most; });
  std::reverse(bins.begin(), bins.end());
  const double low = reach([](const Bin& bin) { return bin.least; });
  return {std::max(seen.low, std::min(0.0, low)), std::min(seen.high, std::max(0.0, high))};
}

// The part r of a range.
Range shrunk(const Problem& p, const Range& seen, double r) {
  return p.symmetric() ? Range{0, std::max(-seen.low, seen.high) * r}
                       : Range{seen.low * r, seen.high * r};
}

template <class C>
numerics::ScaleAndZeroPoint<C> parameters_of(const Problem& p, const Range& range) {
  return numerics::range_parameters<C>({static_cast<C>(range.low), static_cast<C>(range.high)},
                                       p.symmetric(), p.range);
}

// The squared error of all values, as if each lay in the middle of its bin.
template <class C>
double squared_error(const Problem& p, const std::vector<Bin>& bins, const Range& range) {
  const auto found = parameters_of<C>(p, range);
  const numerics::Affine<double> affine(static_cast<double>(found.scale), found.zero_point, p.range,
                                        Profile::onnx);
  double sum = 0;
  for (const Bin& bin : bins) {
    const double x = bin.middle();
    const double error = x - numerics::fake_quantize(x, affine);
    sum += static_cast<double>(bin.count) * (error * error);
  }
  return sum;
}

Range by_mse(const Problem& p, const std::vector<Bin>& bins, const Range& seen) {
  constexpr int steps = 128;
  double least = std::numeric_limits<double>::infinity();
  Range best = shrunk(p, seen, 1);
  for (int k = steps; k > 0; --k) {
    const Range range = shrunk(p, seen, static_cast<double>(k) / steps);
    const double error =
        p.wide ? squared_error<double>(p, bins, range) : squared_error<float>(p, bins, range);
    if (error < least) {
      least = error;
      best = range;
    }
  }
  return best;
}

// How much is lost if the first `kept` of the columns are told apart by `levels` values only, and
// the rest counts as the last of them: Kullback-Leibler, in bits.
double divergence(const std::vector<double>& columns, std::size_t kept, std::size_t levels) {
  double outside = 0;
  for (std::size_t i = kept; i < columns.size(); ++i) outside += columns[i];
  double inside = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    inside += columns[i];
    if (columns[i] > 0) last = i;
  }
  if (inside == 0) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (std::size_t level = 0; level < levels; ++level) {
    const std::size_t from = level * kept / levels;
    const std::size_t to = (level + 1) * kept / levels;
    double mass = 0;
    double filled = 0;
    for (std::size_t i = from; i < to; ++i) {
      mass += columns[i];
      if (columns[i] > 0) filled += 1;
    }
    for (std::size_t i = from; i < to; ++i) {
      if (columns[i] == 0) continue;
      const double truth = (columns[i] + (i == last ? outside : 0)) / (inside + outside);
      const double guess = mass / filled / inside;
      sum += truth * numerics::log2(truth / guess);
    }
  }
  return sum;
}

Range by_entropy(const Problem& p, const std::vector<Bin>& bins, const Range& seen) {
  constexpr std::size_t width = 2048;
  const double most = std::max(-seen.low, seen.high);
  std::vector<double> columns(width);
  for (const Bin& bin : bins) {
    const double at = std::fabs(bin.middle()) / most * static_cast<double>(width);
    columns[std::min(width - 1, static_cast<std::size_t>(at))] += static_cast<double>(bin.count);
  }
  const auto levels = static_cast<std::size_t>(
      std::max(2, p.symmetric() ? p.range.max + 1 : (p.range.max - p.range.min + 1) / 2));
  double least = std::numeric_limits<double>::infinity();
  std::size_t best = width;
  const std::size_t step = std::max<std::size_t>(1, levels / 8);
  for (std::size_t kept = width; kept >= levels; kept -= step) {
    const double lost = divergence(columns, kept, levels);
    if (lost < least) {
      least = lost;
      best = kept;
    }
  }
  const double threshold = most * (static_cast<double>(best) / static_cast<double>(width));
  return p.symmetric() ? Range{0, threshold}
                       : Range{std::max(seen.low, -threshold), std::min(seen.high, threshold)};
}

Range choose(const Problem& p, const Range& seen, const std::int64_t* counts, int histogram_bits) {
  const bool nothing = seen.low == 0 && seen.high == 0;
  if (p.options.method == Calibration::min_max || nothing) return shrunk(p, seen, 1);
  const std::vector<Bin> bins = bins_of(counts, histogram_bits, seen);
  if (p.options.method == Calibration::percentile) return by_percentile(p, bins, seen);
  if (p.options.method == Calibration::mse) return by_mse(p, bins, seen);
  return by_entropy(p, bins, seen);
}

Result<Problem> check(const CalibrationOptions& o, DType input, bool has_histogram) {
  if (Status s = detail::check_type<numerics::CalibratedTypes>("output", o.output); !s)
    return s.error();
  const Result<IntRange> range = detail::check_range(o.output, o.q_min, o.q_max);
  if (!range) return range.error();
  if (Status s = detail::check_mode<numerics::SymmetricCalibratedTypes>(o.mode, o.output, *range);
      !s)
    return s.error();
  switch (o.method) {
    case Calibration::min_max:
      break;
    case Calibration::percentile:
    case Calibration::mse:
    case Calibration::entropy:
      if (has_histogram) break;
      return unsupported("method", fmt::format("expected min_max, got {}; it needs the state of a "
                                               "HistogramObserver",
                                               name(o.method)));
    default:
      return unsupported("method", fmt::format("expected min_max, percentile, mse or entropy, got "
                                               "{}",
                                               static_cast<int>(o.method)));
  }
  if (o.method == Calibration::percentile && !(o.percentile > 0 && o.percentile <= 100))
    return invalid("percentile",
                   fmt::format("expected more than 0 and at most 100, got {}", o.percentile));
  return Problem{o, *range, input == DType::f64};
}

// Not inlined, so that nothing is computed outside of the environment that its caller sets.
__attribute__((noinline)) CalibratedParameters calibrate_here(const Problem& problem,
                                                              const MinMaxState& extremes,
                                                              const std::int64_t* counts) {
  const ObserverDescriptor& d = extremes.descriptor();
  CalibratedParameters found;
  for (std::size_t i = 0; i < extremes.low().size(); ++i) {
    const std::int64_t* own = counts == nullptr ? nullptr
                                                : counts + static_cast<std::int64_t>(i) *
                                                               detail::ObserverProblem{d}.bins();
    const Range range =
        choose(problem, {extremes.low()[i], extremes.high()[i]}, own, d.histogram_bits);
    const auto add = [&](const auto& parameters) {
      found.scales.push_back(static_cast<double>(parameters.scale));
      found.zero_points.push_back(parameters.zero_point);
    };
    if (problem.wide) {
      add(parameters_of<double>(problem, range));
    } else {
      add(parameters_of<float>(problem, range));
    }
  }
  return found;
}

Result<CalibratedParameters> calibrate(const CalibrationOptions& options,
                                       const MinMaxState& extremes, const std::int64_t* counts) {
  const auto problem = check(options, extremes.descriptor().input, counts != nullptr);
  if (!problem) return problem.error();
  const detail::FpEnvironment environment;
  return calibrate_here(*problem, extremes, counts);
}

}  // namespace

std::string_view name(Calibration method) noexcept {
  constexpr std::array<std::string_view, 4> names{"min_max", "percentile", "mse", "entropy"};
  const auto i = static_cast<std::size_t>(method);
  return i < names.size() ? names[i] : "unknown";
}

Result<CalibratedParameters> MinMaxState::parameters(const CalibrationOptions& options) const {
  return calibrate(options, *this, nullptr);
}

Result<CalibratedParameters> HistogramState::parameters(const CalibrationOptions& options) const {
  return calibrate(options, extremes_, counts_.data());
}

}  // namespace octavo
