// What Highway lacks: elements of every type to and from vectors of the compute type, and packed
// nibbles. Compiled once per target (no include guard of the usual kind).
//
// All functions work on blocks of four vectors; a block is what loops step by.

#if defined(OCTAVO_SIMD_VECTOR_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_SIMD_VECTOR_INL_HPP
#undef OCTAVO_SIMD_VECTOR_INL_HPP
#else
#define OCTAVO_SIMD_VECTOR_INL_HPP
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "numerics/affine.hpp"
#include "octavo/dtype.hpp"
#include "octavo/stream.hpp"

#if OCTAVO_SIMD_PASS
HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX2
inline constexpr Target this_target = Target::avx2;
#elif HWY_TARGET == HWY_AVX3
inline constexpr Target this_target = Target::avx512;
#elif HWY_TARGET == HWY_NEON
inline constexpr Target this_target = Target::neon;
#elif HWY_TARGET == HWY_SVE
inline constexpr Target this_target = Target::sve;
#else
#error "a Highway target that is not on Octavo's ladder: disable it in simd/targets.hpp"
#endif

template <class D>
using Ints = hn::Rebind<std::int32_t, D>;

// ---- One vector of the compute type from Lanes(d) elements.

template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const f16* p) {
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadAs(D d, const bf16* p) {
  const hn::Rebind<std::uint16_t, D> half;
  const hn::Rebind<std::uint32_t, D> bits;
  const auto wide = hn::PromoteTo(bits, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(wide));
}

template <class DI, class T>
HWY_INLINE hn::Vec<DI> LoadInts(DI di, const T* p) {
  const hn::Rebind<T, DI> narrow;
  return hn::PromoteTo(di, hn::LoadU(narrow, p));
}

HWY_INLINE hn::Vec<hn::ScalableTag<float>> ToFloat(hn::ScalableTag<float> d,
                                                   hn::Vec<Ints<hn::ScalableTag<float>>> v) {
  return hn::ConvertTo(d, v);
}
HWY_INLINE hn::Vec<hn::ScalableTag<double>> ToFloat(hn::ScalableTag<double> d,
                                                    hn::Vec<Ints<hn::ScalableTag<double>>> v) {
  return hn::PromoteTo(d, v);
}

// CPUs differ in the sign and payload of the NaNs they make, and Highway's NaN is another one
// still.
template <class D>
HWY_INLINE hn::Vec<D> QuietNaN(D d) {
  return hn::Set(d, numerics::quiet_nan<hn::TFromD<D>>);
}
template <class D>
HWY_INLINE hn::Vec<D> Canonical(D d, hn::Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), QuietNaN(d), v);
}

// ---- The first n elements of an aligned buffer of `size`, the others 0.

// Through vectors where a masked load reads only its lanes (on AVX2 not those of 16 bits): what
// narrow stores have written is read as a vector only when they are done, some 10 ns later.
template <size_t size, class T>
HWY_INLINE void CopyPart(const T* from, size_t n, T* to) {
  constexpr bool masked = this_target == Target::avx512 ? sizeof(T) > 1
                          : this_target == Target::avx2 ? sizeof(T) > 2
                                                        : false;
  if constexpr (masked) {
    using Lane = hwy::UnsignedFromSize<sizeof(T)>;
    const hn::CappedTag<Lane, size> d;
    const size_t lanes = hn::Lanes(d);
    for (size_t i = 0; i < size; i += lanes) {
      const auto first = hn::FirstN(d, n - std::min(n, i));
      hn::Store(hn::MaskedLoad(first, d, reinterpret_cast<const Lane*>(from) + i), d,
                reinterpret_cast<Lane*>(to) + i);
    }
  } else {
    std::memset(static_cast<void*>(to), 0, size * sizeof(T));
    std::memcpy(to, from, n * sizeof(T));
  }
}

// ---- Rounding to integers, for |v| < 2^30. Highway's NearestInt also repairs overflow, which the
// callers' clamp has excluded.

HWY_INLINE hn::Vec<Ints<hn::ScalableTag<float>>> RoundToInts(Ints<hn::ScalableTag<float>> /*di*/,
                                                             hn::Vec<hn::ScalableTag<float>> v) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Ints<hn::ScalableTag<float>>>{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Ints<hn::ScalableTag<float>>>{_mm256_cvtps_epi32(v.raw)};
#else
  return hn::NearestInt(v);
#endif
}
HWY_INLINE hn::Vec<Ints<hn::ScalableTag<double>>> RoundToInts(Ints<hn::ScalableTag<double>> di,
                                                              hn::Vec<hn::ScalableTag<double>> v) {
  return hn::DemoteTo(di, hn::Round(v));
}

// ---- Four vectors of floats to memory. `p` is aligned to the vector if `stream`.

template <class D>
HWY_INLINE void StoreOne(D d, hn::Vec<D> v, hn::TFromD<D>* p, bool stream) {
  if (stream) {
    hn::Stream(v, d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

template <class D>
HWY_INLINE void Store4(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e,
                       hn::TFromD<D>* p, bool stream) {
  const size_t n = hn::Lanes(d);
  StoreOne(d, a, p, stream);
  StoreOne(d, b, p + n, stream);
  StoreOne(d, c, p + 2 * n, stream);
  StoreOne(d, e, p + 3 * n, stream);
}

// The bits of v rounded to the nearest even bf16, in the upper half of each lane; NaNs are
// canonical already. The hardware's own conversion flushes subnormals, so it is not used.
template <class D>
HWY_INLINE hn::Vec<hn::Repartition<std::uint16_t, D>> RoundToBf16(D /*d*/, hn::Vec<D> v) {
  const hn::Rebind<std::uint32_t, D> du;
  const hn::Repartition<std::uint16_t, D> d16;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  return hn::BitCast(d16, hn::Add(hn::Add(u, hn::Set(du, 0x7FFF)), odd));
}

template <class D>
HWY_INLINE void Store4(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, bf16* p,
                       bool stream) {
  const hn::Repartition<std::uint16_t, D> d16;
  auto* out = reinterpret_cast<std::uint16_t*>(p);
  StoreOne(d16, hn::ConcatOdd(d16, RoundToBf16(d, b), RoundToBf16(d, a)), out, stream);
  StoreOne(d16, hn::ConcatOdd(d16, RoundToBf16(d, e), RoundToBf16(d, c)), out + hn::Lanes(d16),
           stream);
}

template <class D>
HWY_INLINE void Store4(D /*d*/, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e, f16* p,
                       bool stream) {
  const hn::Rebind<hwy::float16_t, D> half;
  const hn::Rebind<std::uint16_t, D> bits;
  const hn::Repartition<std::uint16_t, D> d16;
  const auto narrow = [&](hn::Vec<D> v)
                          HWY_ATTR { return hn::BitCast(bits, hn::DemoteTo(half, v)); };
  auto* out = reinterpret_cast<std::uint16_t*>(p);
  StoreOne(d16, hn::Combine(d16, narrow(b), narrow(a)), out, stream);
  StoreOne(d16, hn::Combine(d16, narrow(e), narrow(c)), out + hn::Lanes(d16), stream);
}

// ---- Integers to 8 or 16 bits, in [lo, hi].

// Two vectors of int16, as ReorderDemote2To makes them of four of int32.
#if HWY_TARGET != HWY_SVE
template <class T, class V>
HWY_INLINE void StoreShorts(V ab, V ce, std::int32_t lo, std::int32_t hi, T* p, bool stream) {
  const hn::ScalableTag<T> d8;
#if HWY_TARGET == HWY_NEON
  const hn::Half<decltype(d8)> half;
  auto v = hn::Combine(d8, hn::DemoteTo(half, ce), hn::DemoteTo(half, ab));
#else
  // The packs work within 128-bit blocks: one permutation of 32-bit lanes puts all in order.
  constexpr bool is_signed = std::is_same_v<T, std::int8_t>;
#if HWY_TARGET == HWY_AVX3
  const __m512i packed = is_signed ? _mm512_packs_epi16(ab.raw, ce.raw)  //
                                   : _mm512_packus_epi16(ab.raw, ce.raw);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  hn::Vec<decltype(d8)> v{_mm512_permutexvar_epi32(order, packed)};
#else
  const __m256i packed = is_signed ? _mm256_packs_epi16(ab.raw, ce.raw)  //
                                   : _mm256_packus_epi16(ab.raw, ce.raw);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  hn::Vec<decltype(d8)> v{_mm256_permutevar8x32_epi32(packed, order)};
#endif
#endif
  // (The packs have clamped to what T holds.)
  if (lo != std::numeric_limits<T>::min() || hi != std::numeric_limits<T>::max())
    v = hn::Min(hn::Max(v, hn::Set(d8, static_cast<T>(lo))), hn::Set(d8, static_cast<T>(hi)));
  StoreOne(d8, v, p, stream);
}
template <class V>
HWY_INLINE void StoreShorts(V ab, V ce, std::int32_t lo, std::int32_t hi, std::int16_t* p,
                            bool stream) {
  const hn::ScalableTag<std::int16_t> d16;
  using Limits = std::numeric_limits<std::int16_t>;
  const bool narrow = lo != Limits::min() || hi != Limits::max();
  const auto store = [&](V v, std::int16_t* to) HWY_ATTR {
  // (As with bytes, and here of 64 bits.)
#if HWY_TARGET == HWY_AVX3
    v = V{_mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), v.raw)};
#elif HWY_TARGET == HWY_AVX2
    v = V{_mm256_permute4x64_epi64(v.raw, _MM_SHUFFLE(3, 1, 2, 0))};
#endif
    if (narrow)
      v = hn::Min(hn::Max(v, hn::Set(d16, static_cast<std::int16_t>(lo))),
                  hn::Set(d16, static_cast<std::int16_t>(hi)));
    StoreOne(d16, v, to, stream);
  };
  store(ab, p);
  store(ce, p + hn::Lanes(d16));
}
#endif

// Four vectors of int32; to 8 bits, |v| < 2^15.
template <class T, class DI>
HWY_INLINE void StoreInts4(DI di, hn::Vec<DI> a, hn::Vec<DI> b, hn::Vec<DI> c, hn::Vec<DI> e,
                           std::int32_t lo, std::int32_t hi, T* p, bool stream) {
#if HWY_TARGET != HWY_SVE
  if constexpr (hn::MaxLanes(di) == hn::MaxLanes(hn::ScalableTag<std::int32_t>())) {
    const hn::ScalableTag<std::int16_t> d16;
    StoreShorts(hn::ReorderDemote2To(d16, a, b), hn::ReorderDemote2To(d16, c, e), lo, hi, p,
                stream);
    return;
  }
#endif
  // Half-filled vectors (f64) and SVE, whose pairwise packs interleave: vector by vector.
  (void)stream;
  const hn::Rebind<T, DI> narrow;
  const size_t n = hn::Lanes(di);
  const auto store = [&](hn::Vec<DI> v, T* to) HWY_ATTR {
    v = hn::Min(hn::Max(v, hn::Set(di, lo)), hn::Set(di, hi));
    hn::StoreU(hn::DemoteTo(narrow, v), narrow, to);
  };
  store(a, p);
  store(b, p + n);
  store(c, p + 2 * n);
  store(e, p + 3 * n);
}

// Brings a cache line to the second cache: early enough, it costs the first one nothing.
HWY_INLINE void PrefetchToL2(const void* p) { __builtin_prefetch(p, 0, 2); }

// ---- Packed nibbles, a block of 4 * Lanes(d) of them: the even index in the low nibble.

#if HWY_TARGET == HWY_SVE

template <class D, class T>
HWY_INLINE void UnpackNibbles(D d, const std::uint8_t* from, T* to) {
  const auto extend = [](int v) {
    return static_cast<T>(std::is_same_v<T, std::int8_t> ? (v ^ 8) - 8 : v);
  };
  for (size_t i = 0; i < 4 * hn::Lanes(d); i += 2) {
    to[i] = extend(from[i / 2] & 0xF);
    to[i + 1] = extend(from[i / 2] >> 4);
  }
}

template <class D, class T>
HWY_INLINE void PackNibbles(D d, const T* from, std::uint8_t* to) {
  for (size_t i = 0; i < 4 * hn::Lanes(d); i += 2)
    to[i / 2] = static_cast<std::uint8_t>((from[i] & 0xF) | ((from[i + 1] & 0xF) << 4));
}

#else

template <class D>
using BlockBytes = hn::CappedTag<std::uint8_t, 4 * hn::MaxLanes(D())>;

template <class D, class T>
HWY_INLINE void UnpackNibbles(D /*d*/, const std::uint8_t* from, T* to) {
  const BlockBytes<D> d8;
  const hn::Repartition<std::uint16_t, BlockBytes<D>> d16;
  const hn::Half<BlockBytes<D>> half;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(half, from));
  auto v = hn::And(hn::BitCast(d8, hn::Or(wide, hn::ShiftLeft<4>(wide))), hn::Set(d8, 0xF));
  const auto sign = hn::Set(d8, 8);
  if constexpr (std::is_same_v<T, std::int8_t>) v = hn::Sub(hn::Xor(v, sign), sign);
  hn::StoreU(v, d8, reinterpret_cast<std::uint8_t*>(to));
}

template <class D, class T>
HWY_INLINE void PackNibbles(D /*d*/, const T* from, std::uint8_t* to) {
  const BlockBytes<D> d8;
  const hn::Repartition<std::uint16_t, BlockBytes<D>> d16;
  const hn::Repartition<std::int16_t, BlockBytes<D>> ds16;
  const hn::Half<BlockBytes<D>> half;
  const auto pair = hn::BitCast(d16, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(from)));
  const auto low = hn::And(pair, hn::Set(d16, 0x000F));
  const auto high = hn::And(hn::ShiftRight<4>(pair), hn::Set(d16, 0x00F0));
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(ds16, hn::Or(low, high))), half, to);
}

#endif

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // OCTAVO_SIMD_PASS

#endif  // per-target include guard
