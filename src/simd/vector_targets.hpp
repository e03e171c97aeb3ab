// The targets that have vector kernels: the one list. A target is added here, with its files.
#pragma once

#include "simd/targets.hpp"
//
#include <hwy/detect_targets.h>

#include <array>

#include "core/choose.hpp"
#include "octavo/stream.hpp"

/// X(target) for each of them, of any CPU: to declare what the files of a target define.
#define OCTAVO_VECTOR_TARGETS(X) \
  X(Target::scalar);             \
  X(Target::avx2);               \
  X(Target::avx512);             \
  X(Target::neon);               \
  X(Target::sve)

namespace octavo::detail {

template <Target... targets>
struct TargetList {};

/// Those that this compiler builds, best first and the reference last.
using VectorTargets = TargetList<
#if HWY_TARGETS & HWY_AVX3
    Target::avx512,
#endif
#if HWY_TARGETS & HWY_AVX2
    Target::avx2,
#endif
#if HWY_TARGETS & HWY_SVE
    Target::sve,
#endif
#if HWY_TARGETS & HWY_NEON
    Target::neon,
#endif
    Target::scalar>;

/// The list of implementations that Finder<target>::find gives.
template <class Key, class Impl, template <Target> class Finder, Target... targets>
constexpr std::array<Entry<Key, Impl>, sizeof...(targets)> entries_of(TargetList<targets...>) {
  return {{Entry<Key, Impl>{{Backend::cpu, targets}, Finder<targets>::find}...}};
}

}  // namespace octavo::detail
