// Floats of one type as those of another.
#pragma once

#include <cstdint>

#include "numerics/types.hpp"
#include "simd/vector_targets.hpp"

namespace octavo::detail {

/// n floats, each rounded once to the type of `to`, which is apart from them; NaNs are canonical.
using ConvertFunction = void (*)(const void* from, std::int64_t n, void* to);

/// Null for f64 to f16 or bf16. (Hidden by hand: of a function that names only types of the public
/// headers, compilers think that it is as public as they are.)
template <Target target>
[[gnu::visibility("hidden")]] ConvertFunction find_convert(DType from, DType to);

#define OCTAVO_DECLARE(target) \
  template <>                  \
  [[gnu::visibility("hidden")]] ConvertFunction find_convert<target>(DType from, DType to)
OCTAVO_VECTOR_TARGETS(OCTAVO_DECLARE);
#undef OCTAVO_DECLARE

/// The types of either end, as C++ has them: a target's own function, or null.
template <class F>
ConvertFunction find_conversion(DType from, DType to, F function) {
  return numerics::find_type(numerics::FloatTypes(), from, [&]<DType f>() {
    return numerics::find_type(numerics::FloatTypes(), to, [&]<DType t>() -> ConvertFunction {
      if constexpr (f == DType::f64 && bits(t) == 16) {
        return nullptr;
      } else {
        return function.template operator()<f, t>();
      }
    });
  });
}

}  // namespace octavo::detail
