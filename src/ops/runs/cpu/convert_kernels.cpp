// Floats of one type as those of another, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/runs/cpu/convert_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "numerics/linear.hpp"
#include "ops/runs/cpu/convert.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

// Blocks are at most 32 long: so many scales of a group are one.
template <class C>
using ConvertTag = hn::CappedTag<C, 8>;

template <class D, class T>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const T* p) {
  using C = hn::TFromD<D>;
  if constexpr (std::is_same_v<C, double> && !std::is_same_v<T, double>) {
    return hn::PromoteTo(d, LoadAs(hn::Rebind<float, D>(), p));
  } else if constexpr (std::is_same_v<C, float> && std::is_same_v<T, double>) {
    const hn::Half<D> half;
    const hn::Rebind<double, hn::Half<D>> wide;
    return hn::Combine(d, hn::DemoteTo(half, hn::LoadU(wide, p + hn::Lanes(half))),
                       hn::DemoteTo(half, hn::LoadU(wide, p)));
  } else {
    return LoadAs(d, p);
  }
}

template <class From, class To>
void Convert(const void* input, std::int64_t n, void* output) {
  using C = std::conditional_t<std::is_same_v<To, double>, double, float>;
  const ConvertTag<C> d;
  constexpr size_t max_block = 4 * hn::MaxLanes(ConvertTag<C>());
  const size_t lanes = hn::Lanes(d);
  const auto block = static_cast<std::int64_t>(4 * lanes);
  const auto* from = static_cast<const From*>(input);
  auto* to = static_cast<To*>(output);
  const auto convert = [&](const From* x, To* y) HWY_ATTR {
    const auto load = [&](size_t i) HWY_ATTR { return Canonical(d, LoadFloats(d, x + i * lanes)); };
    Store4(d, load(0), load(1), load(2), load(3), y, false);
  };
  for (; n >= block; n -= block, from += block, to += block) convert(from, to);
  if (n == 0) return;
  HWY_ALIGN From part[max_block];
  HWY_ALIGN To converted[max_block];
  CopyPart<max_block>(from, static_cast<size_t>(n), part);
  convert(part, converted);
  std::memcpy(to, converted, static_cast<size_t>(n) * sizeof(To));
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
ConvertFunction find_convert<HWY_NAMESPACE::this_target>(DType from, DType to) {
  return find_conversion(from, to, []<DType f, DType t>() -> ConvertFunction {
    return HWY_NAMESPACE::Convert<typename numerics::Type<f>::Storage,
                                  typename numerics::Type<t>::Storage>;
  });
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS

#if HWY_ONCE
namespace octavo::detail {
namespace {

template <DType from, DType to>
void convert(const void* input, std::int64_t n, void* output) {
  using T = typename numerics::Type<to>::Storage;
  for (std::int64_t i = 0; i < n; ++i)
    static_cast<T*>(output)[i] = numerics::stored<T>(numerics::Type<from>::read(input, i));
}

}  // namespace

template <>
ConvertFunction find_convert<Target::scalar>(DType from, DType to) {
  return find_conversion(from, to,
                         []<DType f, DType t>() -> ConvertFunction { return convert<f, t>; });
}

}  // namespace octavo::detail
#endif  // HWY_ONCE
