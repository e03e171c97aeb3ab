// Columns of weights times their smoothing scales, for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "offline/scale_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

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
ScaleKernels scale_kernels<HWY_NAMESPACE::this_target>() {
  // (f64 is rare in checkpoints: the scalar loop serves.)
  return {HWY_NAMESPACE::ScaleRowOf<float>, nullptr, HWY_NAMESPACE::ScaleRowOf<f16>,
          HWY_NAMESPACE::ScaleRowOf<bf16>};
}
}  // namespace octavo::offline
#endif  // OCTAVO_SIMD_PASS

#if HWY_ONCE
#include "core/target.hpp"
#include "offline/convert.hpp"
#include "simd/on_target.hpp"

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
ScaleKernels scale_kernels<Target::scalar>() {
  return {scale_row<float>, scale_row<double>, scale_row<f16>, scale_row<bf16>};
}

ScaleRow choose_scale_row(const Stream& stream, DType type) {
  const auto row_of = [type](Target target) {
    const ScaleKernels kernels =
        detail::on_target(target, []<Target t>() { return scale_kernels<t>(); });
    switch (type) {
      case DType::f64:
        return kernels.f64;
      case DType::f16:
        return kernels.f16;
      case DType::bf16:
        return kernels.bf16;
      default:
        return kernels.f32;
    }
  };
  const auto allowed = detail::allowed_targets(stream, {});
  return row_of(detail::best_target(allowed ? *allowed : 0U,
                                    [&](Target target) { return row_of(target) != nullptr; }));
}

}  // namespace octavo::offline
#endif  // HWY_ONCE
