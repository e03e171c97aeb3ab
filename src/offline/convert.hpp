// Elements of any float type to and from the types that arithmetic is done in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numerics/half.hpp"
#include "octavo/dtype.hpp"

namespace octavo::offline {

/// The arithmetic type of an element.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(f16 x) { return numerics::widen(x); }
inline float widen(bf16 x) { return numerics::widen(x); }

template <class T>
T narrow(Compute<T> x) {
  if constexpr (std::is_same_v<T, f16>)
    return numerics::narrow_f16(x);
  else if constexpr (std::is_same_v<T, bf16>)
    return numerics::narrow_bf16(x);
  else
    return x;
}

/// Calls body.operator()<T>() with the C++ type of a float DType.
template <class F>
auto with_float_type(DType type, const F& body) {
  switch (type) {
    case DType::f64:
      return body.template operator()<double>();
    case DType::f16:
      return body.template operator()<f16>();
    case DType::bf16:
      return body.template operator()<bf16>();
    default:
      return body.template operator()<float>();
  }
}

}  // namespace octavo::offline
