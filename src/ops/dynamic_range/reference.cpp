// The scalar target: numerics/dynamic_range.hpp applied element by element. It is the
// specification.
#include "numerics/dynamic_range.hpp"
#include "numerics/half.hpp"
#include "ops/dynamic_range/kernels.hpp"
#include "ops/elementwise/select_kernel.hpp"
#include "simd/on_target.hpp"

namespace octavo::detail {
namespace {

template <class C, class T>
C read(const KernelCall& call, std::int64_t run, std::int64_t i) {
  const T x = static_cast<const T*>(call.input)[call.input_at + run * call.input_step + i];
  if constexpr (sizeof(T) == 2) {
    return numerics::widen(x);
  } else {
    return x;
  }
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
      add(range, read<C, T>(call, run, i), call.symmetric);
      high[at] = range.high;
      if (!call.symmetric) low[at] = range.low;
    }
  return Target::scalar;
}

template <class C, class T, DType integer>
Target fused_kernel(const KernelCall& call) {
  const KernelFunction quantize = find_reference({Op::quantize, dtype_of<T>, integer, false});
  for (std::int64_t run = 0; run < call.count; ++run) {
    numerics::Range<C> range;
    for (std::int64_t i = 0; i < call.length; ++i)
      add(range, read<C, T>(call, run, i), call.symmetric);
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

// Only to tell types apart.
template <class C>
struct Uniform {
  static constexpr bool per_lane = false;
};
template <class C>
struct PerLane {
  static constexpr bool per_lane = true;
};
template <class T>
struct Bytes {
  static constexpr DType type = dtype_of<T>;
};
template <class T>
struct Nibbles {
  static constexpr DType type = std::is_signed_v<T> ? DType::s4 : DType::u4;
};

struct FindRange {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& /*key*/) {
    return range_kernel<C, T, P::per_lane>;
  }
};
struct FindFused {
  template <class C, class T, class P>
  static KernelFunction Find(const KernelKey& key) {
    return with_integer<Bytes, Nibbles>(
        key.integer, []<class Q>() -> KernelFunction { return fused_kernel<C, T, Q::type>; });
  }
};

}  // namespace

template <>
KernelFunction find_range<Target::scalar>(const KernelKey& key) {
  return find_typed<FindRange, Uniform, PerLane>(key);
}
template <>
KernelFunction find_fused<Target::scalar>(const KernelKey& key) {
  return find_typed<FindFused, Uniform, Uniform>(key);
}

DynamicRangeKernels dynamic_range_kernels_of(Target target) {
  return on_target(target, []<Target t>() -> DynamicRangeKernels {
    return {find_range<t>, find_fused<t>};
  });
}

}  // namespace octavo::detail
