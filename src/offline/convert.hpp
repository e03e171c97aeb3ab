// Elements of any float type to and from the types that arithmetic is done in.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

#include "numerics/types.hpp"
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
  using R = decltype(body.template operator()<float>());
  const auto typed = [&body]<DType t>() {
    return body.template operator()<typename numerics::Type<t>::Storage>();
  };
  if constexpr (std::is_void_v<R>) {
    numerics::with_type(numerics::FloatTypes(), type, typed);
  } else {
    std::optional<R> result;
    numerics::with_type(numerics::FloatTypes(), type,
                        [&]<DType t>() { result = typed.template operator()<t>(); });
    return *std::move(result);
  }
}

}  // namespace octavo::offline
