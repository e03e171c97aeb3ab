// Observers on the CPU: ranges by the kernels of dynamic ranges, counts one element at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/fp_environment.hpp"
#include "core/parallel.hpp"
#include "core/parts.hpp"
#include "numerics/types.hpp"
#include "ops/dynamic_range/cpu/kernels.hpp"
#include "ops/dynamic_range/cpu/ranges.hpp"
#include "ops/observer/iteration.hpp"

namespace octavo::detail {
namespace {

// Beyond this, threads do not get histograms of their own.
constexpr std::int64_t max_histogram_bytes = std::int64_t{64} << 20;
// Elements that a thread takes at once.
constexpr std::int64_t chunk = 4096;

// The f32 pattern that a value is counted by: f64 is rounded, and huge values count as the largest.
std::uint32_t pattern(float x) { return std::bit_cast<std::uint32_t>(x); }
std::uint32_t pattern(f16 x) { return pattern(numerics::widen(x)); }
std::uint32_t pattern(bf16 x) { return pattern(numerics::widen(x)); }
std::uint32_t pattern(double x) {
  constexpr double most = std::numeric_limits<float>::max();
  return pattern(static_cast<float>(std::isfinite(x) ? std::clamp(x, -most, most) : x));
}

template <class T>
void count(const void* input, std::int64_t at, std::int64_t stride, std::int64_t n, int shift,
           std::int64_t* counts) {
  constexpr std::uint32_t infinity = 0x7F800000;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = pattern(static_cast<const T*>(input)[at + i * stride]);
    if ((bits & infinity) != infinity) ++counts[bits >> shift];
  }
}

using Count = void (*)(const void*, std::int64_t, std::int64_t, std::int64_t, int, std::int64_t*);
Count count_of(DType type) {
  return numerics::find_type(numerics::FloatTypes(), type, []<DType t>() -> Count {
    return count<typename numerics::Type<t>::Storage>;
  });
}

class CpuObserver final : public ObserverImpl {
 public:
  CpuObserver(const ObserverProblem& p, int threads, const KernelFunction (&range)[2], Count count)
      : ObserverImpl(p),
        range_{range[0], range[1]},
        count_(count),
        pass_(p.slices(), threads, false, p.input),
        range_bytes_((pass_.workspace_size() + 7) / 8 * 8) {
    workspace_bytes = range_bytes_;
    if (!p.histogram) return;
    const std::int64_t bytes = p.slices() * p.bins() * 8;
    parts_ = bytes == 0 ? 1 : parts_of(max_histogram_bytes, bytes, threads);
    if (parts_ > 1) workspace_bytes += static_cast<std::size_t>(parts_ * bytes);
  }

  [[nodiscard]] Status run(const Stream& stream, void* workspace, const TensorRef& input,
                           std::int64_t numel, const Seen& seen) const override {
    const FpEnvironment environment;
    const Iteration it = iterate(problem, input, numel);
    Work work;
    work.iteration = &it;
    work.input_type = problem.input;
    work.output_type = DType::s8;
    work.call.input = input.data;
    pass_.run(stream, work, range_[it.per_lane ? 1 : 0], workspace);
    if (problem.input == DType::f64) {
      widen<double>(workspace, seen);
    } else {
      widen<float>(workspace, seen);
    }
    if (problem.histogram) add_counts(stream, workspace, it, input.data, numel, seen.counts);
    return {};
  }

 private:
  template <class C>
  void widen(const void* workspace, const Seen& seen) const {
    for (std::int64_t i = 0; i < problem.slices(); ++i) {
      const auto range = pass_.merged<C>(workspace, i);
      seen.low[i] = std::min(seen.low[i], static_cast<double>(range.low));
      seen.high[i] = std::max(seen.high[i], static_cast<double>(range.high));
    }
  }

  void add_counts(const Stream& stream, void* workspace, const Iteration& it, const void* input,
                  std::int64_t numel, std::int64_t* counts) const {
    const int parts = parts_of(numel, 65536, std::min(parts_, stream.threads()));
    if (parts == 1) return count_part(it, input, 0, 1, counts);
    auto* own =
        reinterpret_cast<std::int64_t*>(static_cast<unsigned char*>(workspace) + range_bytes_);
    const auto bins = static_cast<std::size_t>(problem.slices() * problem.bins());
    parallel(stream, parts, [&](int part) {
      std::int64_t* to = own + static_cast<std::size_t>(part) * bins;
      std::memset(to, 0, bins * 8);
      count_part(it, input, part, parts, to);
    });
    for (int part = 0; part < parts; ++part)
      for (std::size_t i = 0; i < bins; ++i)
        counts[i] += own[static_cast<std::size_t>(part) * bins + i];
  }

  // All elements of rows and columns, in chunks that parts share out.
  void count_part(const Iteration& it, const void* input, int part, int parts,
                  std::int64_t* counts) const {
    const auto& inner = it.inner().stride;
    const int shift = 23 - problem.histogram_bits;
    const std::int64_t bins = problem.bins();
    const std::int64_t per_row = (it.length() + chunk - 1) / chunk;
    const std::int64_t chunks = it.rows * per_row;
    const std::int64_t first = chunks / parts * part + std::min<std::int64_t>(part, chunks % parts);
    const std::int64_t last = first + chunks / parts + (part < chunks % parts ? 1 : 0);
    for (std::int64_t c = first; c < last; ++c) {
      const auto start = it.start_of(c / per_row);
      const std::int64_t from = c % per_row * chunk;
      const std::int64_t n = std::min(chunk, it.length() - from);
      const std::int64_t at = start[op_input] + from * inner[op_input];
      std::int64_t* slice = counts + start[op_params] * bins;
      if (!it.per_lane) {
        count_(input, at, inner[op_input], n, shift, slice);
        continue;
      }
      for (std::int64_t i = 0; i < n; ++i)
        count_(input, at + i * inner[op_input], 1, 1, shift, slice + (from + i) * bins);
    }
  }

  const KernelFunction range_[2];  // of runs, and of lanes
  const Count count_;
  const RangePass pass_;
  const std::size_t range_bytes_;
  int parts_ = 1;  // that have counts of their own; 1: straight into the state
};

template <Target target>
struct Find {
  static Found<std::shared_ptr<ObserverImpl>> find(const ObserverProblem& p,
                                                   const Allowed& allowed) {
    const KernelFunction range[2] = {find_range<target>({Op::quantize, p.input, DType::s8, false}),
                                     find_range<target>({Op::quantize, p.input, DType::s8, true})};
    const Count count = count_of(p.input);
    if (range[0] == nullptr || range[1] == nullptr || count == nullptr)
      return {nullptr, "no kernel for these types"};
    return {std::make_shared<CpuObserver>(p, allowed.threads, range, count)};
  }
};

constexpr auto entries =
    entries_of<ObserverProblem, std::shared_ptr<ObserverImpl>, Find>(VectorTargets());

}  // namespace

std::span<const ObserverEntry> cpu_observers() { return entries; }

}  // namespace octavo::detail
