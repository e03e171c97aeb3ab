// The epilogue for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/epilogue_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "ops/linear/epilogue.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using detail::EpilogueCall;

template <class C>
struct EpilogueMath {
  using D = hn::ScalableTag<C>;

  static HWY_INLINE hn::Vec<Ints<D>> Sum(const EpilogueCall<C>& call, std::int64_t row,
                                         std::int64_t column) {
    const Ints<D> di;
    auto sum = hn::LoadU(di, call.sums + row * detail::group_columns + column);
    if (call.column_term != nullptr) sum = hn::Sub(sum, hn::LoadU(di, call.column_term + column));
    if (call.column_sum != nullptr)
      sum = hn::Sub(
          sum, hn::Mul(hn::Set(di, call.row_zero[row]), hn::LoadU(di, call.column_sum + column)));
    if (call.weight_zero != nullptr)
      sum = hn::Sub(
          sum, hn::Mul(hn::Set(di, call.row_term[row]), hn::LoadU(di, call.weight_zero + column)));
    return sum;
  }

  template <class T>
  static HWY_INLINE hn::Vec<D> Apply(const EpilogueCall<C>& call, std::int64_t row,
                                     std::int64_t column, const T* residual) {
    const D d;
    const auto value = ToFloat(d, Sum(call, row, column));
    const auto scale =
        hn::Mul(hn::Set(d, call.row_scale[row]), hn::LoadU(d, call.column_scale + column));
    auto y = call.bias != nullptr ? hn::MulAdd(value, scale, hn::LoadU(d, call.bias + column))
                                  : hn::Mul(value, scale);
    if (residual != nullptr) y = hn::Add(y, LoadAs(d, residual));
    if (call.relu) y = hn::IfThenZeroElse(hn::Lt(y, hn::Zero(d)), y);
    return Canonical(d, y);
  }
};

template <class C, class T>
void EpilogueKernel(const EpilogueCall<C>& call) {
  using Math = EpilogueMath<C>;
  const typename Math::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr size_t max_block = 4 * hn::MaxLanes(typename Math::D());
  const std::int64_t block = 4 * lanes;
  for (std::int64_t row = 0; row < call.rows; ++row) {
    auto* out = static_cast<T*>(call.output) + row * call.output_stride;
    const T* residual = call.residual == nullptr
                            ? nullptr
                            : static_cast<const T*>(call.residual) + row * call.residual_stride;
    for (std::int64_t column = 0; column < call.columns; column += block) {
      const std::int64_t n = HWY_MIN(block, call.columns - column);
      HWY_ALIGN T part[max_block];
      const T* from = residual == nullptr ? nullptr : residual + column;
      T* to = out + column;
      if (HWY_UNLIKELY(n < block)) {
        to = part;
        if (from != nullptr) {
          for (std::int64_t i = 0; i < block; ++i) part[i] = i < n ? from[i] : T{};
          from = part;
        }
      }
      const auto apply = [&](std::int64_t i) HWY_ATTR {
        return Math::Apply(call, row, column + i, from == nullptr ? nullptr : from + i);
      };
      const auto a = apply(0);
      const auto b = apply(lanes);
      const auto c = apply(2 * lanes);
      const auto e = apply(3 * lanes);
      Store4(d, a, b, c, e, to, false);
      if (HWY_UNLIKELY(n < block))
        std::memcpy(out + column, part, static_cast<size_t>(n) * sizeof(T));
    }
  }
}

template <class C>
void SumsKernel(const EpilogueCall<C>& call) {
  using Math = EpilogueMath<C>;
  const Ints<typename Math::D> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  for (std::int64_t row = 0; row < call.rows; ++row) {
    auto* out = static_cast<std::int32_t*>(call.output) + row * call.output_stride;
    for (std::int64_t column = 0; column < call.columns; column += lanes) {
      const auto sum = Math::Sum(call, row, column);
      if (HWY_LIKELY(column + lanes <= call.columns)) {
        hn::StoreU(sum, di, out + column);
      } else {
        HWY_ALIGN std::int32_t part[hn::MaxLanes(di)];
        hn::Store(sum, di, part);
        std::memcpy(out + column, part, static_cast<size_t>(call.columns - column) * 4);
      }
    }
  }
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace octavo::detail {
template <>
EpilogueFunction<float> find_epilogue<HWY_NAMESPACE::this_target, float>(DType output) {
  namespace hw = HWY_NAMESPACE;
  switch (output) {
    case DType::f32:
      return hw::EpilogueKernel<float, float>;
    case DType::f16:
      return hw::EpilogueKernel<float, f16>;
    case DType::bf16:
      return hw::EpilogueKernel<float, bf16>;
    case DType::s32:
      return hw::SumsKernel<float>;
    default:
      return nullptr;
  }
}
template <>
EpilogueFunction<double> find_epilogue<HWY_NAMESPACE::this_target, double>(DType output) {
  return output == DType::f64 ? HWY_NAMESPACE::EpilogueKernel<double, double> : nullptr;
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS
