// The scalar target: numerics/dynamic_range.hpp applied element by element. It is the
// specification.
#include "ops/runs/cpu/reference.hpp"
#include "numerics/dynamic_range.hpp"
#include "ops/dynamic_range/cpu/kernels.hpp"
#include "ops/elementwise/cpu/kernels.hpp"
#include "ops/runs/cpu/select_kernel.hpp"

namespace octavo::detail {
namespace {

template <class T>
auto read(const KernelCall& call, std::int64_t run, std::int64_t i) {
  return reference::Plain<T>::read(call.input, call.input_at + run * call.input_step + i);
}

template <class C>
void add(numerics::Range<C>& range, C x, bool symmetric) {
  if (symmetric) {
    range.add_symmetric(x);
  } else {
    range.add_asymmetric(x);
  }
}

template <class C, class T, bool per_lane>
Target range_kernel(const KernelCall& call) {
  auto* low = static_cast<C*>(call.low);
  auto* high = static_cast<C*>(call.high);
  for (std::int64_t run = 0; run < call.count; ++run)
    for (std::int64_t i = 0; i < call.length; ++i) {
      const std::int64_t at = run * call.param_step + (per_lane ? i : 0);
      numerics::Range<C> range{call.symmetric ? C(0) : low[at], high[at]};
      add(range, read<T>(call, run, i), call.symmetric);
      high[at] = range.high;
      if (!call.symmetric) low[at] = range.low;
    }
  return Target::scalar;
}

template <class C, class T, DType integer>
Target fused_kernel(const KernelCall& call) {
  const KernelFunction quantize =
      find_kernel<Target::scalar>({Op::quantize, dtype_of<T>, integer, false});
  for (std::int64_t run = 0; run < call.count; ++run) {
    numerics::Range<C> range;
    for (std::int64_t i = 0; i < call.length; ++i)
      add(range, read<T>(call, run, i), call.symmetric);
    const auto [scale, zero_point] = numerics::range_parameters(range, call.symmetric, call.range);
    static_cast<C*>(call.scale_found)[run * call.param_step] = scale;
    if (call.zero_point_found != nullptr) call.zero_point_found[run * call.param_step] = zero_point;
    KernelCall one = call;
    one.input_at += run * call.input_step;
    one.output_at += run * call.output_step;
    one.count = 1;
    one.scale = &scale;
    one.zero_point = &zero_point;
    quantize(one);
  }
  return Target::scalar;
}

struct FindRange {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& /*key*/) {
    return range_kernel<C, T, P::per_lane>;
  }
};
struct FindFused {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& key) {
    return numerics::find_type(
        numerics::IntegerTypes(), key.integer,
        []<DType integer>() -> KernelFunction { return fused_kernel<C, T, integer>; });
  }
};

}  // namespace

template <>
KernelFunction find_range<Target::scalar>(const KernelKey& key) {
  return find_typed<FindRange, reference::Uniform, reference::PerLane>(key);
}
template <>
KernelFunction find_fused<Target::scalar>(const KernelKey& key) {
  return find_typed<FindFused, reference::Uniform, reference::Uniform>(key);
}

}  // namespace octavo::detail
