// The plans of observers: select, check, run.
#include "octavo/observer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.hpp"
#include "core/parallel.hpp"
#include "numerics/half.hpp"
#include "ops/dynamic_range/ranges.hpp"
#include "ops/observer/access.hpp"

namespace octavo {
namespace {

using detail::invalid;
using detail::unsupported;

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
  switch (type) {
    case DType::f64:
      return count<double>;
    case DType::f16:
      return count<f16>;
    case DType::bf16:
      return count<bf16>;
    default:
      return count<float>;
  }
}

std::int64_t slices_of(const ObserverDescriptor& d) {
  return d.scope == Layout::per_channel ? d.channels : 1;
}
bool same(const ObserverDescriptor& a, const ObserverDescriptor& b) {
  return a.input == b.input && a.scope == b.scope && slices_of(a) == slices_of(b) &&
         a.histogram_bits == b.histogram_bits;
}

// How many threads have counts of their own; 1: straight into the state.
int histogram_parts(const ObserverDescriptor& d, int threads) {
  const std::int64_t bytes = slices_of(d) * ObserverAccess::bins(d) * 8;
  return static_cast<int>(
      std::clamp<std::int64_t>(bytes == 0 ? 1 : max_histogram_bytes / bytes, 1, threads));
}

detail::RangePass range_pass(const ObserverDescriptor& d, int threads) {
  return {slices_of(d), threads, false, d.input};
}

std::size_t range_bytes(const ObserverDescriptor& d, int threads) {
  return (range_pass(d, threads).workspace_size() + 7) / 8 * 8;
}

detail::Work work_of(const ObserverDescriptor& d, const TensorRef& input, std::int64_t numel) {
  detail::ElementwiseProblem problem;
  problem.layout = d.scope;
  problem.axis = d.axis;
  problem.element = d.input;
  problem.shape = d.scope == Layout::per_channel ? input.shape : Shape{numel};
  // Nothing is written; runs are as if for a contiguous output.
  const TensorMut none(nullptr, DType::s8, input.shape);
  detail::ElementwiseArgs args;
  args.input = &input;
  args.output = &none;
  detail::Work work;
  work.iteration = detail::iterate(problem, args);
  work.input_type = d.input;
  work.output_type = DType::s8;
  work.call.input = input.data;
  return work;
}

// All elements of rows and columns, in chunks that parts share out.
void count_part(const detail::Work& work, const ObserverDescriptor& d, int part, int parts,
                std::int64_t* counts) {
  const detail::Iteration& it = work.iteration;
  const auto& inner = it.inner().stride;
  const Count count = count_of(d.input);
  const int shift = 23 - d.histogram_bits;
  const std::int64_t bins = ObserverAccess::bins(d);
  const std::int64_t per_row = (it.length() + chunk - 1) / chunk;
  const std::int64_t chunks = it.rows * per_row;
  const std::int64_t first = chunks / parts * part + std::min<std::int64_t>(part, chunks % parts);
  const std::int64_t last = first + chunks / parts + (part < chunks % parts ? 1 : 0);
  for (std::int64_t c = first; c < last; ++c) {
    const auto start = it.start_of(c / per_row);
    const std::int64_t from = c % per_row * chunk;
    const std::int64_t n = std::min(chunk, it.length() - from);
    const std::int64_t at = start[detail::op_input] + from * inner[detail::op_input];
    std::int64_t* slice = counts + start[detail::op_params] * bins;
    if (!it.per_lane) {
      count(work.call.input, at, inner[detail::op_input], n, shift, slice);
      continue;
    }
    for (std::int64_t i = 0; i < n; ++i)
      count(work.call.input, at + i * inner[detail::op_input], 1, 1, shift,
            slice + (from + i) * bins);
  }
}

}  // namespace

template <class State>
Result<Observer<State>> Observer<State>::select(const Stream& stream, const Descriptor& descriptor,
                                                const PlanPreference& preference) {
  constexpr bool histogram = std::is_same_v<State, HistogramState>;
  if (descriptor.scope != Layout::per_tensor && descriptor.scope != Layout::per_channel)
    return unsupported(
        "scope", fmt::format("expected per_tensor or per_channel, got {}", name(descriptor.scope)));
  if (descriptor.scope == Layout::per_channel && descriptor.channels < 0)
    return invalid("channels", fmt::format("expected 0 or more, got {}", descriptor.channels));
  if (descriptor.histogram_bits < 0 || descriptor.histogram_bits > 7)
    return invalid("histogram_bits",
                   fmt::format("expected 0 to 7, got {}", descriptor.histogram_bits));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(slices_of(descriptor),
                             histogram ? ObserverAccess::bins(descriptor) * 8 : 16, &bytes))
    return invalid("channels", fmt::format("expected states of fewer than 2^63 bytes, got {}",
                                           descriptor.channels));
  // The target, and what is wrong with the rest, as for any plan.
  detail::ElementwiseProblem problem;
  problem.shape = {1};
  problem.element = descriptor.input;
  PlanPreference rest = preference;
  rest.max_workspace_bytes = std::nullopt;
  const auto plan = detail::ElementwisePlan::select(stream, problem, rest);
  if (!plan) return plan.error();

  Observer observer;
  observer.descriptor_ = descriptor;
  observer.parts_ = stream.threads();
  observer.sku_ = plan->sku();
  observer.sku_.category = Category::observer;
  observer.sku_.op = histogram ? Op::observe_histogram : Op::observe_min_max;
  observer.sku_.aux_element = descriptor.input;
  observer.sku_.layout = descriptor.scope;
  if (Status s = detail::check_max_workspace(preference, observer.workspace_size(),
                                             "for what each thread sees");
      !s)
    return s.error();
  return observer;
}

template <class State>
State Observer<State>::make_state() const {
  const auto slices = static_cast<std::size_t>(slices_of(descriptor_));
  State state;
  MinMaxState& extremes = ObserverAccess::extremes(state);
  ObserverAccess::descriptor(extremes) = descriptor_;
  ObserverAccess::low(extremes).assign(slices, 0.0);
  ObserverAccess::high(extremes).assign(slices, 0.0);
  if constexpr (std::is_same_v<State, HistogramState>)
    ObserverAccess::counts(state).assign(
        slices * static_cast<std::size_t>(ObserverAccess::bins(descriptor_)), 0);
  return state;
}

template <class State>
Status Observer<State>::can_implement(const Args& args) const {
  if (args.state == nullptr) return invalid("state", "expected a state of make_state, got null");
  if (!same(ObserverAccess::extremes(*args.state).descriptor(), descriptor_) ||
      static_cast<std::int64_t>(ObserverAccess::extremes(*args.state).low().size()) !=
          slices_of(descriptor_))
    return invalid("state", "expected a state of this observer's make_state, got another");
  const Result<detail::Checked> input = detail::check_input("input", args.input, descriptor_.input);
  if (!input) return input.error();
  if (descriptor_.scope != Layout::per_channel) return {};
  const int rank = args.input.shape.rank();
  const int axis = descriptor_.axis < 0 ? descriptor_.axis + rank : descriptor_.axis;
  if (axis < 0 || axis >= rank || args.input.shape[axis] != descriptor_.channels)
    return invalid("input", fmt::format("expected {} channels along axis {}, got shape {}",
                                        descriptor_.channels, descriptor_.axis,
                                        detail::to_string(args.input.shape)));
  return {};
}

template <class State>
std::size_t Observer<State>::workspace_size() const noexcept {
  std::size_t bytes = range_bytes(descriptor_, parts_);
  if constexpr (std::is_same_v<State, HistogramState>) {
    const int parts = histogram_parts(descriptor_, parts_);
    if (parts > 1)
      bytes += static_cast<std::size_t>(parts * slices_of(descriptor_) *
                                        ObserverAccess::bins(descriptor_) * 8);
  }
  return bytes;
}

template <class State>
Status Observer<State>::run(const Stream& stream, Workspace workspace, const Args& args) const {
  if (Status s = can_implement(args); !s) return s;
  if (Status s = detail::check_workspace(workspace, workspace_size(), {&args.input}); !s) return s;
  const std::int64_t numel = *detail::count_elements("input", args.input.shape);
  if (numel == 0) return {};

  const detail::Work work = work_of(descriptor_, args.input, numel);
  const std::int64_t slices = slices_of(descriptor_);
  const detail::RangePass pass = range_pass(descriptor_, parts_);
  pass.run(stream, work, sku_.target, workspace.data);
  MinMaxState& extremes = ObserverAccess::extremes(*args.state);
  const auto widen = [&](std::int64_t i, double low, double high) {
    const auto at = static_cast<std::size_t>(i);
    ObserverAccess::low(extremes)[at] = std::min(ObserverAccess::low(extremes)[at], low);
    ObserverAccess::high(extremes)[at] = std::max(ObserverAccess::high(extremes)[at], high);
  };
  for (std::int64_t i = 0; i < slices; ++i) {
    if (descriptor_.input == DType::f64) {
      const auto range = pass.merged<double>(workspace.data, i);
      widen(i, range.low, range.high);
    } else {
      const auto range = pass.merged<float>(workspace.data, i);
      widen(i, range.low, range.high);
    }
  }

  if constexpr (std::is_same_v<State, HistogramState>) {
    std::vector<std::int64_t>& counts = ObserverAccess::counts(*args.state);
    const int most = histogram_parts(descriptor_, parts_);
    const int parts = static_cast<int>(
        std::clamp<std::int64_t>(numel / 65536, 1, std::min(most, stream.threads())));
    if (parts == 1) {
      detail::parallel(stream, 1, [&](int) { count_part(work, descriptor_, 0, 1, counts.data()); });
      return {};
    }
    auto* own = reinterpret_cast<std::int64_t*>(static_cast<unsigned char*>(workspace.data) +
                                                range_bytes(descriptor_, parts_));
    const std::size_t bins = counts.size();
    detail::parallel(stream, parts, [&](int part) {
      std::int64_t* to = own + static_cast<std::size_t>(part) * bins;
      std::memset(to, 0, bins * 8);
      count_part(work, descriptor_, part, parts, to);
    });
    for (int part = 0; part < parts; ++part)
      for (std::size_t i = 0; i < bins; ++i)
        counts[i] += own[static_cast<std::size_t>(part) * bins + i];
  }
  return {};
}

template class Observer<MinMaxState>;
template class Observer<HistogramState>;

Status MinMaxState::merge(const MinMaxState& other) {
  if (!same(descriptor_, other.descriptor_) || low_.size() != other.low_.size())
    return invalid("other", "expected a state of the same kind of observer, got another");
  for (std::size_t i = 0; i < low_.size(); ++i) {
    low_[i] = std::min(low_[i], other.low_[i]);
    high_[i] = std::max(high_[i], other.high_[i]);
  }
  return {};
}

Status HistogramState::merge(const HistogramState& other) {
  if (Status s = extremes_.merge(other.extremes_); !s) return s;
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  return {};
}

std::int64_t HistogramState::bins() const noexcept {
  return ObserverAccess::bins(extremes_.descriptor());
}

}  // namespace octavo
