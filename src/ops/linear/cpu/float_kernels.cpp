// Products of floats, for every SIMD target but SVE, whose vectors cannot be in arrays: there those
// of NEON run.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/float_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/linear/cpu/float_kernels.hpp"
#include "ops/linear/problem.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using detail::FloatCall;

#if HWY_TARGET != HWY_SVE

using FloatTag = hn::CappedTag<float, detail::panel_columns>;

// Rows by a few vectors of columns, whose sums stay in registers. Outputs lie in lanes and k goes
// one step at a time, so that no lane's order depends on how wide a vector is.
template <class T, int rows, int vectors>
HWY_INLINE void FloatTile(const FloatCall& call, std::int64_t column) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  using V = hn::Vec<FloatTag>;
  V sums[rows][vectors];
  const T* weights[vectors];
  HWY_UNROLL(8)
  for (int v = 0; v < vectors; ++v) {
    const std::int64_t at = column + v * lanes;
    weights[v] =
        static_cast<const T*>(call.weights[at / detail::wide_columns]) + at % detail::wide_columns;
  }
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < vectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const float* x = call.activations;
  for (std::int64_t k = 0; k < call.count; ++k, x += rows) {
    V w[vectors];
    HWY_UNROLL(8)
    for (int v = 0; v < vectors; ++v) {
      const T* at = weights[v] + k * detail::wide_columns;
      // Memory is asked 2 KB ahead, for each line once: hardware alone asks too late.
      if (v * lanes * static_cast<std::int64_t>(sizeof(T)) % 64 == 0)
        __builtin_prefetch(reinterpret_cast<const char*>(at) + 2048);
      w[v] = LoadAs(d, at);
    }
    HWY_UNROLL(8)
    for (int r = 0; r < rows; ++r) {
      const V a = hn::Set(d, x[r]);
      HWY_UNROLL(8)
      for (int v = 0; v < vectors; ++v) sums[r][v] = hn::MulAdd(a, w[v], sums[r][v]);
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < vectors; ++v)
      hn::StoreU(sums[r][v], d, call.values + r * detail::group_columns + column + v * lanes);
  }
}

template <class T, int rows>
void FloatRows(const FloatCall& call) {
  // (32 registers hold six rows of four vectors; of few rows, more vectors hide the latency.)
  constexpr int vectors = HWY_TARGET == HWY_AVX2 && rows > 2 ? 2 : 4;
  const auto step = static_cast<std::int64_t>(vectors * hn::Lanes(FloatTag()));
  for (std::int64_t column = 0; column < detail::group_columns; column += step)
    FloatTile<T, rows, vectors>(call, column);
}

template <class T>
void FloatKernel(const FloatCall& call) {
  static_assert(detail::float_rows == 6);
  switch (call.rows) {
    case 1:
      return FloatRows<T, 1>(call);
    case 2:
      return FloatRows<T, 2>(call);
    case 3:
      return FloatRows<T, 3>(call);
    case 4:
      return FloatRows<T, 4>(call);
    case 5:
      return FloatRows<T, 5>(call);
    default:
      return FloatRows<T, 6>(call);
  }
}

#endif

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
FloatFunction find_float<HWY_NAMESPACE::this_target>([[maybe_unused]] DType weight) {
#if HWY_TARGET == HWY_SVE
  return nullptr;
#else
  return numerics::find_type(FloatLinearTypes(), weight, []<DType type>() -> FloatFunction {
    return HWY_NAMESPACE::FloatKernel<typename numerics::Type<type>::Storage>;
  });
#endif
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS

#if HWY_ONCE
namespace octavo::detail {
namespace {

template <DType type>
void float_kernel(const FloatCall& call) {
  for (std::int64_t r = 0; r < call.rows; ++r)
    for (std::int64_t c = 0; c < group_columns; ++c) {
      float y = 0;
      for (std::int64_t k = 0; k < call.count; ++k)
        y = std::fma(call.activations[k * call.rows + r],
                     numerics::Type<type>::read(call.weights[c / wide_columns],
                                                k * wide_columns + c % wide_columns),
                     y);
      call.values[r * group_columns + c] = y;
    }
}

}  // namespace

template <>
FloatFunction find_float<Target::scalar>(DType weight) {
  return numerics::find_type(FloatLinearTypes(), weight,
                             []<DType type>() -> FloatFunction { return float_kernel<type>; });
}

}  // namespace octavo::detail
#endif  // HWY_ONCE
