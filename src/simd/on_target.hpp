// From a run-time target to a template's: the one place that knows which ones this compiler builds.
#pragma once

#include "simd/targets.hpp"
//
#include <hwy/detect_targets.h>

#include "octavo/stream.hpp"

namespace octavo::detail {

/// fn<target>(), or a default result for a target that has no vector kernels of its own.
template <class F>
auto on_target(Target target, F fn) -> decltype(fn.template operator()<Target::scalar>()) {
  switch (target) {
    case Target::scalar:
      return fn.template operator()<Target::scalar>();
#if HWY_TARGETS & HWY_AVX2
    case Target::avx2:
      return fn.template operator()<Target::avx2>();
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::avx512:
      return fn.template operator()<Target::avx512>();
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::neon:
      return fn.template operator()<Target::neon>();
#endif
#if HWY_TARGETS & HWY_SVE
    case Target::sve:
      return fn.template operator()<Target::sve>();
#endif
    default:
      return {};
  }
}

}  // namespace octavo::detail
