// The epilogue for every SIMD target.
#include "simd/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/cpu/epilogue_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "ops/linear/cpu/epilogue.hpp"
#include "simd/vector-inl.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {

using detail::EpilogueCall;

// No wider than 16 lanes, so that four vectors are at most group_columns.
template <class C>
using EpilogueTag = hn::CappedTag<C, detail::group_columns / 4>;

template <class D>
HWY_INLINE hn::Vec<D> FromSums(D d, hn::Vec<Ints<D>> v) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::ConvertTo(d, v);
  } else {
    return hn::PromoteTo(d, v);
  }
}

// v[i] = f(v[i], i) for four vectors.
template <class V, class F>
HWY_INLINE void EachOf4(V& a, V& b, V& c, V& e, F f) {
  a = f(a, 0);
  b = f(b, 1);
  c = f(c, 2);
  e = f(e, 3);
}

// 256 * high + low, which doubles hold, rounded once.
template <class D>
HWY_INLINE hn::Vec<D> FromHalves(D d, hn::Vec<Ints<D>> high, hn::Vec<Ints<D>> low) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    const hn::Half<D> half;
    const hn::Half<Ints<D>> half_ints;
    const hn::Rebind<double, hn::Half<D>> wide;
    const auto join = [&](auto h, auto l) HWY_ATTR {
      return hn::DemoteTo(
          half, hn::MulAdd(hn::PromoteTo(wide, h), hn::Set(wide, 256.0), hn::PromoteTo(wide, l)));
    };
    return hn::Combine(d, join(hn::UpperHalf(half_ints, high), hn::UpperHalf(half_ints, low)),
                       join(hn::LowerHalf(half_ints, high), hn::LowerHalf(half_ints, low)));
  } else {
    return hn::MulAdd(hn::PromoteTo(d, high), hn::Set(d, 256.0), hn::PromoteTo(d, low));
  }
}

// Four vectors of sums, less what the zero points add to them.
template <class C, class DI, class V>
HWY_INLINE void LoadSums(const EpilogueCall<C>& call, std::int64_t row, std::int64_t column, DI di,
                         V& a, V& b, V& c, V& e) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(di));
  const auto load = [&](const std::int32_t* from, int i)
                        HWY_ATTR { return hn::LoadU(di, from + column + i * lanes); };
  const std::int32_t* sums = call.sums + row * detail::group_columns;
  EachOf4(a, b, c, e, [&](V, int i) HWY_ATTR { return load(sums, i); });
  if (call.column_term != nullptr)
    EachOf4(a, b, c, e, [&](V v, int i) HWY_ATTR { return hn::Sub(v, load(call.column_term, i)); });
  if (call.column_sum != nullptr) {
    const auto zero = hn::Set(di, call.row_zero[row]);
    EachOf4(a, b, c, e, [&](V v, int i) HWY_ATTR {
      return hn::Sub(v, hn::Mul(zero, load(call.column_sum, i)));
    });
  }
  if (call.weight_zero != nullptr) {
    const auto term = hn::Set(di, call.row_term[row]);
    EachOf4(a, b, c, e, [&](V v, int i) HWY_ATTR {
      return hn::Sub(v, hn::Mul(term, load(call.weight_zero, i)));
    });
  }
}

// Four vectors of a row's acc.
template <class C, class D, class V>
HWY_INLINE void LoadAcc(const EpilogueCall<C>& call, std::int64_t row, std::int64_t column, D d,
                        V& a, V& b, V& c, V& e) {
  const Ints<D> di;
  auto ia = hn::Zero(di), ib = ia, ic = ia, ie = ia;
  LoadSums(call, call.halves == 1 ? row : 2 * row, column, di, ia, ib, ic, ie);
  if (call.halves == 1) {
    a = FromSums(d, ia), b = FromSums(d, ib), c = FromSums(d, ic), e = FromSums(d, ie);
    return;
  }
  auto la = hn::Zero(di), lb = la, lc = la, le = la;
  LoadSums(call, 2 * row + 1, column, di, la, lb, lc, le);
  a = FromHalves(d, ia, la), b = FromHalves(d, ib, lb);
  c = FromHalves(d, ic, lc), e = FromHalves(d, ie, le);
}

// One row's block of four vectors; `residual` is null where there is none.
template <class C, class T>
HWY_INLINE void EpilogueBlock(const EpilogueCall<C>& call, std::int64_t row, std::int64_t column,
                              const T* residual, T* to) {
  const EpilogueTag<C> d;
  using V = hn::Vec<EpilogueTag<C>>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  if (call.values != nullptr) {
    const C* values = call.values + row * detail::group_columns + column;
    EachOf4(a, b, c, e, [&](V, int i) HWY_ATTR { return hn::LoadU(d, values + i * lanes); });
  } else {
    LoadAcc(call, row, column, d, a, b, c, e);
  }
  const auto row_scale = hn::Set(d, call.row_scale[row]);
  const auto scale = [&](int i) HWY_ATTR {
    return call.column_scale == nullptr
               ? row_scale
               : hn::Mul(row_scale, hn::LoadU(d, call.column_scale + column + i * lanes));
  };
  if (call.bias != nullptr) {
    EachOf4(a, b, c, e, [&](V v, int i) HWY_ATTR {
      return hn::MulAdd(v, scale(i), hn::LoadU(d, call.bias + column + i * lanes));
    });
  } else {
    EachOf4(a, b, c, e, [&](V v, int i) HWY_ATTR { return hn::Mul(v, scale(i)); });
  }
  if (residual != nullptr)
    EachOf4(a, b, c, e,
            [&](V v, int i) HWY_ATTR { return hn::Add(v, LoadAs(d, residual + i * lanes)); });
  if (call.relu)
    EachOf4(a, b, c, e,
            [&](V v, int) HWY_ATTR { return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v); });
  EachOf4(a, b, c, e, [&](V v, int) HWY_ATTR { return Canonical(d, v); });
  Store4(d, a, b, c, e, to, false);
}

template <class C, class T>
void EpilogueKernel(const EpilogueCall<C>& call) {
  const EpilogueTag<C> d;
  constexpr size_t max_block = 4 * hn::MaxLanes(EpilogueTag<C>());
  const auto block = static_cast<std::int64_t>(4 * hn::Lanes(d));
  for (std::int64_t row = 0; row < call.rows; ++row) {
    auto* out = static_cast<T*>(call.output) + row * call.output_stride;
    const T* residual = call.residual == nullptr
                            ? nullptr
                            : static_cast<const T*>(call.residual) + row * call.residual_stride;
    std::int64_t column = 0;
    for (; column + block <= call.columns; column += block)
      EpilogueBlock(call, row, column, residual == nullptr ? nullptr : residual + column,
                    out + column);
    if (column == call.columns) continue;
    HWY_ALIGN T part[max_block] = {};
    const auto bytes = static_cast<size_t>(call.columns - column) * sizeof(T);
    if (residual != nullptr) std::memcpy(part, residual + column, bytes);
    EpilogueBlock(call, row, column, residual == nullptr ? nullptr : part, part);
    std::memcpy(out + column, part, bytes);
  }
}

template <class C>
void TermsKernel(const EpilogueCall<C>& call) {
  const EpilogueTag<C> d;
  using V = hn::Vec<EpilogueTag<C>>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < call.rows; ++row)
    for (std::int64_t column = 0; column < call.columns; column += 4 * lanes) {
      C* y = static_cast<C*>(call.output) + row * detail::group_columns + column;
      const C* scales = call.column_scale + column;
      auto a = hn::Zero(d), b = a, c = a, e = a;
      LoadAcc(call, row, column, d, a, b, c, e);
      EachOf4(a, b, c, e, [&](V v, int i) HWY_ATTR {
        return hn::MulAdd(v, hn::LoadU(d, scales + i * lanes), hn::LoadU(d, y + i * lanes));
      });
      Store4(d, a, b, c, e, y, false);
    }
}

void SumsKernel(const EpilogueCall<float>& call) {
  const Ints<EpilogueTag<float>> di;
  constexpr size_t max_block = 4 * hn::MaxLanes(Ints<EpilogueTag<float>>());
  const auto block = static_cast<std::int64_t>(4 * hn::Lanes(di));
  for (std::int64_t row = 0; row < call.rows; ++row) {
    auto* out = static_cast<std::int32_t*>(call.output) + row * call.output_stride;
    for (std::int64_t column = 0; column < call.columns; column += block) {
      auto a = hn::Zero(di), b = a, c = a, e = a;
      LoadSums(call, row, column, di, a, b, c, e);
      if (HWY_LIKELY(column + block <= call.columns)) {
        Store4(di, a, b, c, e, out + column, false);
      } else {
        HWY_ALIGN std::int32_t part[max_block];
        Store4(di, a, b, c, e, part, false);
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
  return numerics::find_type(
      EpilogueTypes<float>(), output, []<DType type>() -> EpilogueFunction<float> {
        if constexpr (type == DType::s32) {
          return HWY_NAMESPACE::SumsKernel;
        } else {
          return HWY_NAMESPACE::EpilogueKernel<float, typename numerics::Type<type>::Storage>;
        }
      });
}
template <>
EpilogueFunction<double> find_epilogue<HWY_NAMESPACE::this_target, double>(DType output) {
  return numerics::find_type(
      EpilogueTypes<double>(), output, []<DType type>() -> EpilogueFunction<double> {
        return HWY_NAMESPACE::EpilogueKernel<double, typename numerics::Type<type>::Storage>;
      });
}
template <>
EpilogueFunction<float> find_terms<HWY_NAMESPACE::this_target, float>() {
  return HWY_NAMESPACE::TermsKernel<float>;
}
template <>
EpilogueFunction<double> find_terms<HWY_NAMESPACE::this_target, double>() {
  return HWY_NAMESPACE::TermsKernel<double>;
}
}  // namespace octavo::detail
#endif  // OCTAVO_SIMD_PASS
