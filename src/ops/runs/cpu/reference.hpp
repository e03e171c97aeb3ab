// What the references of operations over runs share: elements read and written one at a time, and
// where the parameters of a run are found.
#pragma once

#include "numerics/types.hpp"

namespace octavo::detail::reference {

template <class T>
using Plain = numerics::Type<dtype_of<T>>;
template <class T>
using Nibbles = numerics::NibbleType<T>;

/// One for all of a run.
template <class C>
struct Uniform {
  static constexpr bool per_lane = false;
  using Compute = C;
};
/// One for each element.
template <class C>
struct PerLane {
  static constexpr bool per_lane = true;
  using Compute = C;
};

}  // namespace octavo::detail::reference
