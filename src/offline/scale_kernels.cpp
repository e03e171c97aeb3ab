// Columns of weights times their smoothing scales, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offline/scale_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "numerics/types.hpp"
#include "offline/scale_kernels.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

// Four vectors: what a step of the loop works on.
template <class T>
HWY_INLINE void ScaleBlock(const T* from, const float* scales, T* to) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto scaled = [&](size_t i) HWY_ATTR {
    const auto v = hn::Mul(LoadAs(d, from + i * lanes), hn::LoadU(d, scales + i * lanes));
    // f32 keeps a NaN as the multiplication gives it, as the scalar loop does.
    if constexpr (std::is_same_v<T, float>) return v;
    return Canonical(d, v);
  };
  Store4(d, scaled(0), scaled(1), scaled(2), scaled(3), to, false);
}

template <class T>
void ScaleRowOf(const void* source, const float* scales, std::int64_t n, void* target) {
  const hn::ScalableTag<float> d;
  constexpr size_t most = 4 * hn::MaxLanes(d);
  const auto block = static_cast<std::int64_t>(4 * hn::Lanes(d));
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(target);
  std::int64_t i = 0;
  for (; i + block <= n; i += block) ScaleBlock(from + i, scales + i, to + i);
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  HWY_ALIGN T in[most] = {};
  HWY_ALIGN float by[most] = {};
  HWY_ALIGN T out[most];
  std::memcpy(in, from + i, rest * sizeof(T));
  std::memcpy(by, scales + i, rest * sizeof(float));
  ScaleBlock(in, by, out);
  std::memcpy(to + i, out, rest * sizeof(T));
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::offline {
template <>
ScaleRow find_scale_row<HWY_NAMESPACE::this_target>(DType type) {
  // (f64 is rare in checkpoints: the scalar loop serves.)
  using Types = numerics::TypeList<DType::f32, DType::f16, DType::bf16>;
  return numerics::find_type(Types(), type, []<DType t>() -> ScaleRow {
    return HWY_NAMESPACE::ScaleRowOf<typename numerics::Type<t>::Storage>;
  });
}
}  // namespace octavo::offline
#endif  // OCTAVO_SIMD_PASS

#if HWY_ONCE
#include "core/choose.hpp"
#include "offline/convert.hpp"

namespace octavo::offline {
namespace {

template <class T>
void scale_row(const void* source, const float* scales, std::int64_t n, void* target) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(target);
  for (std::int64_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, from + i * std::int64_t{sizeof(T)}, sizeof(T));
    x = narrow<T>(widen(x) * Compute<T>{scales[i]});
    std::memcpy(to + i * std::int64_t{sizeof(T)}, &x, sizeof(T));
  }
}

}  // namespace

template <>
ScaleRow find_scale_row<Target::scalar>(DType type) {
  return numerics::find_type(numerics::FloatTypes(), type, []<DType t>() -> ScaleRow {
    return scale_row<typename numerics::Type<t>::Storage>;
  });
}

namespace {

template <Target target>
struct Find {
  static detail::Found<ScaleRow> find(const DType& type, const detail::Allowed& /*allowed*/) {
    return {find_scale_row<target>(type)};
  }
};
constexpr auto entries = detail::entries_of<DType, ScaleRow, Find>(detail::VectorTargets());

}  // namespace

ScaleRow choose_scale_row(const Stream& stream, DType type) {
  const auto allowed = detail::allowed_places(stream, {});
  const auto chosen = detail::choose(allowed ? *allowed : detail::Allowed(), type,
                                     {std::span<const detail::Entry<DType, ScaleRow>>(entries)});
  return chosen ? chosen->impl : find_scale_row<Target::scalar>(type);
}

}  // namespace octavo::offline
#endif  // HWY_ONCE
